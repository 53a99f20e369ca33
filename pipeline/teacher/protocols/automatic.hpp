#pragma once

#include <span>
#include <string>

#include "pipeline/teacher/protocols/registry.hpp"

namespace distilld {

/// The path of an endpoint's URL without what belongs to one of the protocols, and without a slash at its end.
[[nodiscard]] std::string root_of(std::string path, std::span<const TeacherProtocolRow> rows);

/// `protocol: "auto"`: asks the endpoint what it is and speaks the protocol of `rows` that is_spoken_by() finds. The
/// URL may be the server's root, or end in one of the protocols' own paths. A server that none of them speaks is
/// refused by what it is.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_automatic_adapter(
    const ProtocolSettings& settings, std::span<const TeacherProtocolRow> rows);

}  // namespace distilld
