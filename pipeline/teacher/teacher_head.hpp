#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"

namespace distilld {

/// Reads the head from a safetensors file with one two-dimensional tensor in F16, BF16 or F32. `sha256` is the expected
/// hash; empty = unchecked. The result keeps `owner`. Errors describe the file. Any thread; takes a second per
/// gigabyte.
[[nodiscard]] Result<TeacherHead> read_head_file(std::span<const std::byte> file, const std::string& sha256,
                                                 std::shared_ptr<const void> owner);

/// Projects hidden states of a few positions to logits [B, T, V] in f32, in plain loops. Fails if the widths differ.
[[nodiscard]] Result<TeacherTargets> project_few(const TeacherTargets& hidden, const TeacherHead& head);

}  // namespace distilld
