"""A custom model of the KServe SDK, as its guide writes one: logits of a small Llama over the Open Inference Protocol.

kserve_server.py FOLDER PORT"""

import sys

import uvicorn
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.errors import InvalidInput
from llama_numpy import Llama


class Teacher(Model):
    def __init__(self, folder):
        super().__init__("teacher")
        self.model = Llama(folder)
        self.ready = True

    async def get_input_types(self):
        return [{"name": "input_ids", "datatype": "INT32", "shape": [-1, -1]}]

    async def get_output_types(self):
        return [{"name": "logits", "datatype": "FP32", "shape": [-1, -1, self.model.vocabulary]}]

    def predict(self, payload, headers=None, response_headers=None):
        ids = next((given for given in payload.inputs if given.name == "input_ids"), None)
        if ids is None:
            raise InvalidInput("the input input_ids is missing")
        try:
            logits = self.model.logits(ids.as_numpy())
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        output = InferOutput(name="logits", shape=list(logits.shape), datatype="FP32")
        output.set_data_from_numpy(logits, binary_data=False)
        return InferResponse(
            response_id=payload.id,
            model_name=self.name,
            infer_outputs=[output],
            use_binary_outputs=bool(payload.use_binary_outputs),
            requested_outputs=payload.request_outputs,
        )


def listen_on_loopback():
    """The SDK listens on every address and has no setting for it."""
    initialise = uvicorn.Config.__init__

    def on_loopback(self, *arguments, **options):
        initialise(self, *arguments, **{**options, "host": "127.0.0.1"})

    uvicorn.Config.__init__ = on_loopback


if __name__ == "__main__":
    listen_on_loopback()
    ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, workers=1).start([Teacher(sys.argv[1])])
