"""Any Hugging Face model as stacks, layers and heads; the tap on its forward pass; decoding and task scores."""

from ._anatomy import COMPONENTS as COMPONENTS
from ._anatomy import Anatomy as Anatomy
from ._anatomy import Attention as Attention
from ._anatomy import Layer as Layer
from ._anatomy import ParameterGroup as ParameterGroup
from ._anatomy import Stack as Stack
from ._attention import AttentionCall as AttentionCall
from ._attention import Site as Site
from ._load import load_model as load_model
from ._model import Model as Model
from ._model import Task as Task
from ._slices import ParameterSlice as ParameterSlice
from ._slices import Projection as Projection
from ._tap import HeadCall as HeadCall
from ._tap import Tap as Tap
from ._tap import tap as tap
from ._tokenizers import TARGET_FOLDER as TARGET_FOLDER
