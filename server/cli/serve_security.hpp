#pragma once

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/job_spec_json.hpp"
#include "base/error.hpp"
#include "base/file_rule.hpp"
#include "server/http/http_server.hpp"
#include "server/security/audit_log.hpp"
#include "server/security/key_ring.hpp"
#include "server/settings/service_settings.hpp"

namespace distilld::cli {

/// Folders of the data folder: what clients have sent, and the outputs of jobs that name none.
inline constexpr const char* kFilesFolder = "files";
inline constexpr const char* kOutputsFolder = "outputs";

/// What `distilld serve` lets people do.
struct ServeSecurity {
    std::shared_ptr<KeyRing> keys;
    std::shared_ptr<AuditLog> audit;
    std::shared_ptr<boost::asio::ssl::context> tls;  ///< none: plain HTTP
    /// What the operator does not allow of a spec, whose paths are absolute. Any thread; looks at the disk.
    std::function<api::SpecViolations(const JobSpec&)> admit;
    /// The same once the job was taken: by then the spec may name what the service has put into it.
    std::function<api::SpecViolations(const JobSpec&)> admit_again;
    /// Which files whoever works on such a spec may open; nothing: any.
    std::function<std::optional<FileRule>(const JobSpec&)> files;
};

/// Opens keys and audit log of the data folder. invalid_input: options that cannot be meant so, an address that others
/// reach although there is no key among them. Before there are threads: it takes the admin's key out of the environment
/// and puts what workers have to know into it.
[[nodiscard]] Result<ServeSecurity> open_security(const SecuritySettings& settings, const std::string& listen,
                                                  const std::filesystem::path& data_dir);

/// TLS, doorkeeper and auditor of the server.
void guard_server(http::ServerOptions& server, const ServeSecurity& security, const SecuritySettings& settings);

}  // namespace distilld::cli
