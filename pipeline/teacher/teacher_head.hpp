#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"

namespace distilld {

/// The head in a safetensors file with one tensor of two dimensions, in F16, BF16 or F32. `sha256` is what the file's
/// must be; empty = it is not looked at. The result keeps `owner`. Errors say what is wrong with the file. Any thread;
/// takes a second a gigabyte.
[[nodiscard]] Result<TeacherHead> read_head_file(std::span<const std::byte> file, const std::string& sha256,
                                                 std::shared_ptr<const void> owner);

/// Logits [B, T, V] in f32 of hidden states of a few positions, in plain loops. The error says that the widths differ.
[[nodiscard]] Result<TeacherTargets> project_few(const TeacherTargets& hidden, const TeacherHead& head);

}  // namespace distilld
