#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Fits the answers of a teacher with another vocabulary to the student's `vocabulary` ids: see fit_vocabulary(). The
/// head for hidden states is fitted too. The teacher has `known` ids (0 = unknown); larger ids are not sent. Rows that
/// cannot be fitted fail as unusable (FetchError). Runs on the executors of `teacher`.
[[nodiscard]] std::unique_ptr<TeacherSource> make_fitting_teacher(std::unique_ptr<TeacherSource> teacher,
                                                                  std::uint32_t vocabulary, std::uint64_t known);

/// The info of a fitting teacher.
[[nodiscard]] TeacherInfo fitted_info(TeacherInfo info, std::uint32_t vocabulary);

}  // namespace distilld
