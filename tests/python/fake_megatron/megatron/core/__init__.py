"""As much of Megatron as marking needs: its names, signatures, and how its modules import each other.

FAKE_MEGATRON_VERSION, FAKE_MEGATRON_MISSING (module.attribute, separated by blanks: not there in this version).
"""

from megatron.core import parallel_state as parallel_state
from megatron.core.package_info import __version__ as __version__
