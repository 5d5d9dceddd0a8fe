"""Import and export: Hugging Face folders, read and written without torch or transformers, and ONNX.

    Hugging Face folder ──import_folder──▶ run folder ──export_folder──▶ Hugging Face folder

`tensors.py` reads and writes files, `names.py` maps tensor names, and each architecture has a file with the rest.
"ours" means Cutaway's and "theirs" means Hugging Face's.
"""
