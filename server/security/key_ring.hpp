#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "server/http/caller.hpp"
#include "server/security/key_file.hpp"

namespace distilld {

struct KeyRingOptions {
    std::optional<std::string> admin_secret{};       ///< of a key besides those of the file; only its hash is stored
    std::chrono::milliseconds look_interval{200};    ///< between checks for changes of the file
    std::chrono::milliseconds note_interval{60000};  ///< between writes of the last uses of keys
};

/// The keys of a running service. A separate thread checks whether the file has changed, so that keys can be created
/// and revoked without a restart, and records when they were used; only that thread uses the disk. Any thread.
class KeyRing {
  public:
    virtual ~KeyRing() = default;

    /// Whether requests need a key: a key exists or has existed since the start. Never returns to false: neither a lost
    /// or damaged file nor the revocation of the last key opens the service.
    [[nodiscard]] virtual bool protects() const = 0;

    /// The owner of the key.
    [[nodiscard]] virtual std::optional<http::Caller> find(std::string_view secret) = 0;

    /// Whether a caller of find() still has that key and role.
    [[nodiscard]] virtual bool holds(const http::Caller& caller) = 0;
};

/// Reads the file at once; a damaged one is an error. An admin secret of fewer than 32 characters is refused.
[[nodiscard]] Result<std::shared_ptr<KeyRing>> open_key_ring(KeyFile file, const KeyRingOptions& options = {});

}  // namespace distilld
