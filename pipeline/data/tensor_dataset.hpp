#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

/// Maps safetensors files as one dataset of samples, in the order given: the first dimension of each tensor counts the
/// samples of its file, and all files have tensors of the same names, dtypes and other dimensions. A sample is a row
/// of one position (TokenBatch::tensors). Dtypes: F64 F32 F16 BF16 I64 I32 U8 BOOL. The hash is over names, dtypes,
/// shapes and values, and does not depend on how the samples are divided into files. `cancelled` is called every
/// few megabytes; true ends reading with an error of kind `cancelled`. Errors name the file and the tensor. The files
/// must not change while the dataset is used.
Result<std::shared_ptr<const Dataset>> load_tensor_dataset(std::span<const std::filesystem::path> files,
                                                           const std::function<bool()>& cancelled);

}  // namespace distilld
