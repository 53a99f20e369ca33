#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <string>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/teacher/document_teacher.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/teacher/teacher_connection.hpp"

namespace distilld {

/// Checks that the teacher's tokenizer is the student's; if they cannot be compared, one line says so. `name` is the
/// teacher's name in messages. The error (kind teacher) begins with /teacher/require_same_tokenizer and names both.
[[nodiscard]] Result<void> check_tokenizer(const TeacherSpec& spec, const std::string& name,
                                           const TokenizerSigns& student, const TokenizerSigns& teacher,
                                           const EmitEvent& emit);

/// Checks that the ids in only one of the two vocabularies cannot appear in text: the tokenizers are the same, or the
/// ids are so few that they are padding. One line says what happens to them. The error (kind teacher) names both sizes
/// and what to do.
[[nodiscard]] Result<void> check_vocabulary(const TeacherSpec& spec, const TokenizerSigns& student,
                                            std::uint32_t vocabulary, const TeacherInfo& teacher,
                                            const EmitEvent& emit);

/// check_tokenizer() for a probed teacher, and further notes. If the tokenizers are the same, the student gets the
/// teacher's hash; if the number of the teacher's ids is unknown, its answers are fitted.
[[nodiscard]] Result<void> compare_tokenizers(ConnectedTeacher& teacher, const TeacherSpec& spec,
                                              const StoredData& data, const EmitEvent& emit);

/// The teacher with answers over the student's vocabulary: check_vocabulary() if the sizes differ.
[[nodiscard]] Result<ConnectedTeacher> fit_to_student(Result<ConnectedTeacher> teacher, const TeacherSpec& spec,
                                                      const StoredData& data, const EmitEvent& emit);

/// Reports how the first answers in other tokens fit the student, on `io`.
[[nodiscard]] OnAlignment telling_of_alignment(boost::asio::any_io_executor io, EmitEvent emit);

}  // namespace distilld
