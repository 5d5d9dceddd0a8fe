"""Run the command line: python -m cutaway"""

from cutaway.cli import main

main()
