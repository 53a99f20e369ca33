#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::webhooks {

/// An event for one receiver, with its number of attempts.
struct WebhookEvent {
    std::int64_t number = 0;
    std::string id;  ///< "evt_" and 24 hexadecimal digits, per event and receiver
    std::string job_id;
    std::string type;        ///< job.succeeded, job.failed, job.cancelled
    std::string created_at;  ///< RFC 3339
    std::string body;        ///< empty: not sent yet
    std::uint32_t attempts = 0;
};

/// Undelivered events. A trigger in the job store's database creates one per receiver in the transaction that ends a
/// job, so an event exists exactly if the job has ended. One thread. Database errors are thrown as ErrorException (io)
/// that names the file.
class WebhookOutbox {
  public:
    virtual ~WebhookOutbox() = default;
    /// Sets the receivers. Events for other receivers are dropped.
    virtual void set_receivers(const std::vector<std::string>& urls) = 0;
    /// The receiver's event that has been due for longest at `now` (Unix time in seconds).
    [[nodiscard]] virtual std::optional<WebhookEvent> due(const std::string& url, double now) = 0;
    virtual void set_body(std::int64_t number, const std::string& body) = 0;
    virtual void try_again(std::int64_t number, std::uint32_t attempts, double at) = 0;
    virtual void remove(std::int64_t number) = 0;
};

/// `database`: file of the job store, which must exist. Creates its own tables there if they are missing.
[[nodiscard]] Result<std::unique_ptr<WebhookOutbox>> open_webhook_outbox(const std::filesystem::path& database);

}  // namespace distilld::webhooks
