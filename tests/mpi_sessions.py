"""Gives this process, and what it starts, a place of its own for Open MPI's session files. All mpirun of a user share
one directory otherwise (/tmp/ompi.HOST.UID), and one that starts while another ends may find it gone: "A call to mkdir
was unable to create the desired directory: File exists" (Open MPI 4.1.4, opal_os_dirpath_create)."""
import atexit
import os
import shutil
import tempfile

ENVIRONMENT = {"OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(prefix="ompi-")}
os.environ.update(ENVIRONMENT)
atexit.register(shutil.rmtree, ENVIRONMENT["OMPI_MCA_orte_tmpdir_base"], True)
