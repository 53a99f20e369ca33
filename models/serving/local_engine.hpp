#pragma once

#include <cstdint>
#include <string>

#include "models/serving/local_teacher.hpp"

namespace distilld::models {

/// How many threads a teacher in the process computes with: `wanted`, or where that is 0 half of `cores`, at least one.
[[nodiscard]] std::uint32_t local_threads_for(std::uint32_t wanted, std::uint32_t cores) noexcept;

/// Loads what `distilld teacher` would serve, for a student on `student_device` (as /student/device). With OpenMP,
/// which libtorch's CPU builds use, a number of threads is that of the thread that computes: the student's stays what
/// it is.
[[nodiscard]] LoadTeacherModel local_model_loader(std::string student_device);

}  // namespace distilld::models
