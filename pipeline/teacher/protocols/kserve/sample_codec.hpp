#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"

namespace distilld::kserve {

/// Datatypes of the tensors of samples.
inline constexpr std::array kSampleDatatypes{
    EnumName<ElementType>{"FP16", ElementType::f16},     EnumName<ElementType>{"BF16", ElementType::bf16},
    EnumName<ElementType>{"FP32", ElementType::f32},     EnumName<ElementType>{"FP64", ElementType::f64},
    EnumName<ElementType>{"INT32", ElementType::i32},    EnumName<ElementType>{"UINT32", ElementType::u32},
    EnumName<ElementType>{"INT64", ElementType::i64},    EnumName<ElementType>{"UINT8", ElementType::u8},
    EnumName<ElementType>{"BOOL", ElementType::boolean},
};

/// A parameter of a model's metadata, an extension: its inputs may have any of these datatypes, not only the stated
/// ones.
inline constexpr const char* kAnyDatatype = "any_datatype";

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
