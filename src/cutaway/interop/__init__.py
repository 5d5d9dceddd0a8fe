"""Models from elsewhere, and for elsewhere: Hugging Face's folders, read and written without torch or transformers.

    their folder ──import_folder──▶ run folder ──export_folder──▶ their folder

`tensors.py` knows files, `names.py` what tensors are called on either side, a file for each architecture the rest.
"""
