#pragma once

#include <span>

#include "pipeline/teacher/protocols/registry.hpp"

namespace distilld {

/// `protocol: "auto"`: asks the endpoint what it is and speaks the protocol of `rows` that is_spoken_by() finds. The
/// URL may be the server's root, or end in one of the protocols' own paths. A server that none of them speaks is
/// refused by what it is.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_automatic_adapter(
    const ProtocolSettings& settings, std::span<const TeacherProtocolRow> rows);

}  // namespace distilld
