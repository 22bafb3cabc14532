from .comparison import Compared as Compared
from .comparison import compare as compare
from .comparison import train_best as train_best
