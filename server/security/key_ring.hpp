#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/caller.hpp"
#include "base/error.hpp"
#include "server/security/key_file.hpp"

namespace distilld {

struct KeyRingOptions {
    std::optional<std::string> admin_secret{};       ///< of a key beside those of the file; only its hash is kept
    std::chrono::milliseconds look_interval{200};    ///< at the file, whether it has changed
    std::chrono::milliseconds note_interval{60000};  ///< between two writes of when keys were used
};

/// The keys of a running service. A thread of its own looks whether the file has changed, so that keys are made and
/// revoked without a restart, and writes down when they were used; nothing else here touches the disk. Any thread.
class KeyRing {
  public:
    virtual ~KeyRing() = default;

    /// Whether requests need a key: there is one, or has been since the service started. It never goes back to false:
    /// a file that is lost, or damaged, or whose last key was revoked opens no door.
    [[nodiscard]] virtual bool protects() const = 0;

    /// Whose key it is.
    [[nodiscard]] virtual std::optional<api::Caller> find(std::string_view secret) = 0;

    /// Whether one whom find() gave still has that key, in that role.
    [[nodiscard]] virtual bool holds(const api::Caller& caller) = 0;
};

/// Reads the file at once: one that is damaged is an error. An admin secret of less than 32 characters is refused.
[[nodiscard]] Result<std::shared_ptr<KeyRing>> open_key_ring(KeyFile file, const KeyRingOptions& options = {});

}  // namespace distilld
