#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// A teacher whose answers are over the student's `vocabulary` ids, of one whose vocabulary is of another size: see
/// fit_vocabulary(). The head of hidden states is fitted as well. `known` ids are the teacher's; 0 = it does not tell.
/// It is not asked about others. Rows that cannot be fitted fail as unusable (FetchError). Executors are the source's.
[[nodiscard]] std::unique_ptr<TeacherSource> make_fitting_teacher(std::unique_ptr<TeacherSource> teacher,
                                                                  std::uint32_t vocabulary, std::uint64_t known);

/// What a fitting teacher says of itself.
[[nodiscard]] TeacherInfo fitted_info(TeacherInfo info, std::uint32_t vocabulary);

}  // namespace distilld
