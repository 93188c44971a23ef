from . import study as study
from .algorithms import ALGORITHMS as ALGORITHMS
from .data import Dataset as Dataset
from .errors import FedlibError as FedlibError
from .federation import Federation as Federation
from .lab import Record as Record
from .lab import RunSpec as RunSpec
from .lab import run as run
from .lab import sweep as sweep
from .models import Model as Model
from .simulation import simulate as simulate

__version__: str
