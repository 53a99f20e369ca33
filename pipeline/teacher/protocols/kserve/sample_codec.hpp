#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"

namespace distilld::kserve {

/// Tensors of a model that answers samples, by name.
struct SampleNames {
    std::vector<std::string> inputs;   ///< of the data, and of the model
    std::vector<std::string> outputs;  ///< floating
};

/// Sends the named tensors of a batch of samples and requests the named outputs, whose first dimension is that of the
/// samples. Floats are converted to the datatype of the model's input. A batch takes several requests if the server
/// limits them (`max_batch_size`). Errors name the endpoint and the field.
[[nodiscard]] Result<std::shared_ptr<const TeacherCodec>> make_sample_codec(const EndpointUrl& url, SampleNames names,
                                                                            Dialect dialect,
                                                                            std::shared_ptr<BufferPool> buffers);

}  // namespace distilld::kserve
