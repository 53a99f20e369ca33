#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::webhooks {

/// What one receiver is to be told, and how often that was tried.
struct WebhookEvent {
    std::int64_t number = 0;
    std::string id;  ///< "evt_" and 24 hexadecimal digits: of this event for this receiver
    std::string job_id;
    std::string type;        ///< job.succeeded, job.failed, job.cancelled
    std::string created_at;  ///< RFC 3339
    std::string body;        ///< empty: it was not sent yet
    std::uint32_t attempts = 0;
};

/// Events that have not been delivered. A trigger in the job store's database makes one for each receiver in the
/// transaction that ends a job, so an event is there exactly when the end is. One thread. What the database refuses is
/// thrown as ErrorException (io) that names it.
class WebhookOutbox {
  public:
    virtual ~WebhookOutbox() = default;
    /// From now on these receive. Events for others are dropped.
    virtual void set_receivers(const std::vector<std::string>& urls) = 0;
    /// The event for the receiver that is due for longest at `now` (Unix time in seconds).
    [[nodiscard]] virtual std::optional<WebhookEvent> due(const std::string& url, double now) = 0;
    virtual void set_body(std::int64_t number, const std::string& body) = 0;
    virtual void try_again(std::int64_t number, std::uint32_t attempts, double at) = 0;
    virtual void remove(std::int64_t number) = 0;
};

/// `database`: file of the job store, which has been opened before. Creates its own tables there if they are missing.
[[nodiscard]] Result<std::unique_ptr<WebhookOutbox>> open_webhook_outbox(const std::filesystem::path& database);

}  // namespace distilld::webhooks
