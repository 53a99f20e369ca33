"""model.py of a Triton model with named tensors: a network of two layers, in numpy. Its parameters say where the
weights are (a .npz file)."""

import json

import numpy
import triton_python_backend_utils as backend


class TritonPythonModel:
    def initialize(self, arguments):
        config = json.loads(arguments["model_config"])
        self.weights = dict(numpy.load(config["parameters"]["weights"]["string_value"]))

    def execute(self, requests):
        return [self.answer(backend.get_input_tensor_by_name(request, "x").as_numpy()) for request in requests]

    def answer(self, x):
        h = numpy.tanh(x @ self.weights["first.weight"].T + self.weights["first.bias"])
        y = h @ self.weights["last.weight"].T + self.weights["last.bias"]
        return backend.InferenceResponse([backend.Tensor("y", y), backend.Tensor("h", h)])
