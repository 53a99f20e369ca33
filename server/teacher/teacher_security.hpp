#pragma once

#include <optional>

#include "base/error.hpp"
#include "base/files/file_rule.hpp"
#include "server/http/http_server.hpp"
#include "server/teacher/teacher_options.hpp"

namespace distilld::teacher {

/// Sets the keys and TLS of the options. Warns about an address that others can reach without a key. invalid_input:
/// contradictory options, or unusable files.
[[nodiscard]] Result<void> guard_server(http::ServerOptions& server, const TeacherOptions& options);

/// Which files a client may have opened, as adapters; nullopt: any, for a server that only its own machine reaches,
/// without keys.
[[nodiscard]] std::optional<FileRule> adapter_rule(const TeacherOptions& options);

}  // namespace distilld::teacher
