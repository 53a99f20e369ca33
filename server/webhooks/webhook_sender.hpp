#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/job_types.hpp"
#include "base/error.hpp"
#include "server/settings/service_settings.hpp"
#include "server/webhooks/webhook_outbox.hpp"

namespace distilld::webhooks {

/// Pauses before the second and later attempts, a day in total. Further attempts use the last one.
inline constexpr std::array<std::chrono::seconds, 11> kWebhookDelays{
    std::chrono::seconds(1),  std::chrono::seconds(5),  std::chrono::seconds(30), std::chrono::minutes(2),
    std::chrono::minutes(10), std::chrono::minutes(30), std::chrono::hours(1),    std::chrono::hours(2),
    std::chrono::hours(4),    std::chrono::hours(6),    std::chrono::hours(10)};

struct WebhookOptions : WebhooksSettings {
    std::vector<std::string> secrets{};    ///< decoded
    std::chrono::milliseconds pause{500};  ///< between two checks of the outbox
};

/// Finds a job by id, on the caller's executor; see JobManager::get().
using JobLookup = std::function<boost::asio::awaitable<std::optional<api::Job>>(std::string id)>;

/// Result of one attempt: delivered, retried (another will follow), given_up.
using AttemptObserver = std::function<void(const char* result)>;

/// Notifies receivers when jobs end: a signed POST of {id, type, created_at, data}, repeated until a 2xx answer or the
/// limit of attempts. Runs on its own thread; a slow receiver does not delay others. An event may arrive twice with the
/// same id, if the service ended between the answer and its record.
class WebhookSender {
  public:
    /// Cancels running attempts and waits for them; undelivered events are sent after the next start.
    virtual ~WebhookSender() = default;
};

/// Starts sending at once. The error (invalid_input) names the URL.
[[nodiscard]] Result<std::unique_ptr<WebhookSender>> make_webhook_sender(WebhookOptions options,
                                                                         std::unique_ptr<WebhookOutbox> outbox,
                                                                         JobLookup job, AttemptObserver observer);

}  // namespace distilld::webhooks
