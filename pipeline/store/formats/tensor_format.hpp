#pragma once

#include <span>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/manifest.hpp"

/// Format tensors: a row is one sample, and each output of the teacher is a stream `output.NAME` of its elements in
/// row-major order. RowCodec uses these functions; its declarations say what they return.
namespace distilld {

[[nodiscard]] std::vector<StoreStream> tensor_streams(const StoreManifest& manifest);

/// An element that the store's values cannot hold as a finite number is an error (invalid_input).
[[nodiscard]] Result<std::vector<StoredRow>> encode_tensors(const StoreManifest& manifest, const TokenBatch& batch,
                                                            const TeacherTargets& targets);

[[nodiscard]] Result<TeacherTargets> decode_tensors(const StoreManifest& manifest, const TokenBatch& batch,
                                                    std::span<const StoredRowView> rows, TargetBuffers& buffers);

}  // namespace distilld
