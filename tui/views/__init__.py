"""The views, in the order of their keys. To add one: a file beside this one, and its class here."""

from ..view import View
from .batch import Batch
from .gpus import Gpus
from .kvmap import KVMap
from .overview import Overview
from .probes import Probes
from .processes import Processes
from .requests import Requests
from .threads import Threads

VIEWS: tuple[type[View], ...] = (Overview, KVMap, Requests, Batch, Probes, Threads, Processes, Gpus)
