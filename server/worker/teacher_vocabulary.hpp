#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/teacher_connection.hpp"

namespace distilld {

/// Whether the teacher's tokenizer is the student's, as far as the two can be compared; where they cannot, one line
/// says so. `name` is the teacher's for people. The error (kind teacher) begins with /teacher/require_same_tokenizer
/// and names both.
[[nodiscard]] Result<void> check_tokenizer(const TeacherSpec& spec, const std::string& name,
                                           const TokenizerSigns& student, const TokenizerSigns& teacher,
                                           const EmitEvent& emit);

/// Whether the ids that only one of the two vocabularies has can be ones that no text has: the tokenizers are the same,
/// or there are so few that they are padding. One line says what becomes of them. The error (kind teacher) names both
/// sizes and what to do.
[[nodiscard]] Result<void> check_vocabulary(const TeacherSpec& spec, const TokenizerSigns& student,
                                            std::uint32_t vocabulary, const TeacherInfo& teacher,
                                            const EmitEvent& emit);

/// check_tokenizer() of a teacher that has passed its probe, and what else there is to say of it. Where the two are the
/// same, the student's hash is the teacher's; where it is not known how many ids the teacher has, its answers are
/// fitted.
[[nodiscard]] Result<void> compare_tokenizers(ConnectedTeacher& teacher, const TeacherSpec& spec,
                                              const StoredData& data, const EmitEvent& emit);

/// The teacher, with its answers over the student's vocabulary: check_vocabulary() where the two are not of one size.
[[nodiscard]] Result<ConnectedTeacher> fit_to_student(Result<ConnectedTeacher> teacher, const TeacherSpec& spec,
                                                      const StoredData& data, const EmitEvent& emit);

}  // namespace distilld
