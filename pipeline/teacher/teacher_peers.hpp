#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/teacher/endpoint_probe.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"

/// What the probes of several endpoints show of the teacher that they are together.
namespace distilld {

/// Why `other` is no replica of the endpoint that the run has learnt its teacher from: it has another form, another
/// head, or answers otherwise than rounding explains.
[[nodiscard]] std::optional<std::string> unlike_peer(const std::string& first_name, const EndpointProbe& first,
                                                     const EndpointProbe& other);

/// One line for the log.
[[nodiscard]] std::string describe_teacher(const TeacherEndpoint& front, std::size_t endpoints, const TeacherInfo& info,
                                           bool replicas_agree);

/// Room for the answer of either.
[[nodiscard]] AnswerSize larger_of(const AnswerSize& a, const AnswerSize& b);

/// What those said last that are not up, of the first few; empty texts are of others.
[[nodiscard]] std::string waited_for(const std::vector<std::string>& said);

}  // namespace distilld
