"""model.py of a Triton model repository: a small Llama, with the inputs and outputs of TensorRT-LLM where the model's
configuration has them (`context_logits`), else `logits`. Its parameters say where the model folder is."""

import json
import sys

import numpy
import triton_python_backend_utils as backend


class TritonPythonModel:
    def initialize(self, arguments):
        config = json.loads(arguments["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        sys.path.insert(0, parameters["code"])
        from llama_numpy import Llama

        self.model = Llama(parameters["folder"])
        self.output = next(output["name"] for output in config["output"] if output["name"].endswith("logits"))

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        ids = backend.get_input_tensor_by_name(request, "input_ids").as_numpy()
        try:
            logits = self.model.logits(ids)
        except ValueError as error:
            return backend.InferenceResponse(error=backend.TritonError(str(error)))
        tensors = []
        if self.output == "context_logits":
            tokens = numpy.concatenate([ids, logits[:, -1].argmax(-1)[:, None]], 1).astype("i4")
            tensors.append(backend.Tensor("output_ids", tokens[:, None, :]))
            asked = backend.get_input_tensor_by_name(request, "return_context_logits")
            if asked is None or not asked.as_numpy().all():
                return backend.InferenceResponse(tensors)
        tensors.append(backend.Tensor(self.output, logits))
        return backend.InferenceResponse(tensors)
