#pragma once

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/job_spec_json.hpp"
#include "base/error.hpp"
#include "base/files/file_rule.hpp"
#include "server/http/http_server.hpp"
#include "server/security/audit_log.hpp"
#include "server/security/key_ring.hpp"
#include "server/settings/service_settings.hpp"

namespace distilld::cli {

/// Folders in the data folder: files from clients, and the outputs of jobs that do not name one.
inline constexpr const char* kFilesFolder = "files";
inline constexpr const char* kOutputsFolder = "outputs";

/// The access rules of `distilld serve`.
struct ServeSecurity {
    std::shared_ptr<KeyRing> keys;
    std::shared_ptr<AuditLog> audit;
    std::shared_ptr<boost::asio::ssl::context> tls;  ///< none: plain HTTP
    /// What the operator does not allow in a spec with absolute paths. Any thread; looks at the disk.
    std::function<api::SpecViolations(const JobSpec&)> policy;
    /// The same after the job was accepted: the spec may then contain paths that the service added.
    std::function<api::SpecViolations(const JobSpec&)> start_policy;
    /// Which files may be opened for such a spec; empty: any.
    std::function<std::optional<FileRule>(const JobSpec&)> files;
};

/// Opens keys and audit log of the data folder. invalid_input: contradictory options, or an address that others can
/// reach although there are no keys. Call before threads exist: it removes the admin's key from the environment and
/// adds what workers must know.
[[nodiscard]] Result<ServeSecurity> open_security(const SecuritySettings& settings, const std::string& listen,
                                                  const std::filesystem::path& data_dir);

/// Sets TLS, authenticator and auditor of the server.
void guard_server(http::ServerOptions& server, const ServeSecurity& security, const SecuritySettings& settings);

}  // namespace distilld::cli
