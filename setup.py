"""Packs what is not a package: the experiments, so that an installed keplab runs them by name from any folder."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

EXPERIMENTS = Path(__file__).parent / "experiments"


class WithExperiments(build_py):
    """Builds the packages, and puts the experiments beside them; a tree without them builds as well."""

    def run(self) -> None:
        """Copy all that scenarios read, as it lies in the repository."""
        super().run()
        target = Path(self.build_lib) / "lab" / "shipped" / "experiments"
        if EXPERIMENTS.is_dir() and not self.editable_mode:
            shutil.copytree(EXPERIMENTS, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": WithExperiments})
