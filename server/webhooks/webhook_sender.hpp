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

/// Waits before the second attempt and each later one: a day, all together. More attempts than these wait as the last.
inline constexpr std::array<std::chrono::seconds, 11> kWebhookDelays{
    std::chrono::seconds(1),  std::chrono::seconds(5),  std::chrono::seconds(30), std::chrono::minutes(2),
    std::chrono::minutes(10), std::chrono::minutes(30), std::chrono::hours(1),    std::chrono::hours(2),
    std::chrono::hours(4),    std::chrono::hours(6),    std::chrono::hours(10)};

struct WebhookOptions : WebhooksSettings {
    std::vector<std::string> secrets{};    ///< bytes, not their text
    std::chrono::milliseconds pause{500};  ///< between two looks into the outbox
};

/// The job of an id, on the caller's executor; see JobManager::get().
using JobLookup = std::function<boost::asio::awaitable<std::optional<api::Job>>(std::string id)>;

/// What one attempt came to: delivered, retried (there will be another), given_up (there will be none).
using AttemptObserver = std::function<void(const char* result)>;

/// Tells receivers of the ends of jobs: POST of {id, type, created_at, data}, signed, tried again until a 2xx answer or
/// until the tries are over. On a thread of its own; a receiver that is slow holds up no other. An event may come twice
/// (the service ended between the answer and its record), with the same id.
class WebhookSender {
  public:
    /// Ends the attempts under way and waits for that; what was not delivered is at the next start.
    virtual ~WebhookSender() = default;
};

/// Begins at once. The error (invalid_input) names the URL.
[[nodiscard]] Result<std::unique_ptr<WebhookSender>> make_webhook_sender(WebhookOptions options,
                                                                         std::unique_ptr<WebhookOutbox> outbox,
                                                                         JobLookup job, AttemptObserver observer);

}  // namespace distilld::webhooks
