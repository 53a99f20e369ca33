#include "server/webhooks/webhook_sender.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/object.hpp>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "base/json_text.hpp"
#include "base/random.hpp"
#include "base/time.hpp"
#include "base/unix_time.hpp"
#include "distilld_version.hpp"
#include "net/endpoint_url.hpp"
#include "net/http_connector.hpp"
#include "net/http_pool.hpp"
#include "net/tls_context.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/support/failure_logger.hpp"
#include "server/support/log.hpp"
#include "server/webhooks/private_hosts.hpp"
#include "server/webhooks/webhook_signature.hpp"

namespace distilld::webhooks {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr const char* kComponent = "webhooks";
constexpr std::uint64_t kMaxReply = std::uint64_t{1} << 20U;
constexpr std::chrono::seconds kStoreTrouble{10};
constexpr std::chrono::hours kMaxRetryAfter{1};
constexpr double kJitter = 0.1;
constexpr unsigned kGone = 410;

struct Receiver {
    std::string url;
    EndpointUrl parts;
    std::unique_ptr<HttpPool> pool;
    std::set<std::int64_t> delivered;  ///< events that could not be removed from the outbox
};

/// The result of an attempt.
struct Attempt {
    bool delivered = false;
    bool final = false;  ///< a retry is useless
    std::string trouble;
    std::chrono::nanoseconds retry_after{0};
};

/// Paths of receivers may be secret, so the log shows only their hosts.
std::string without_path(std::string message, const EndpointUrl& url) {
    if (const auto at = message.find(url.name); at != std::string::npos) {
        message.replace(at, url.name.size(), url.host_header);
    }
    return message;
}

class ThreadedWebhookSender final : public WebhookSender {
  public:
    ThreadedWebhookSender(WebhookOptions options, std::unique_ptr<WebhookOutbox> outbox, JobLookup job,
                          AttemptObserver observer)
        : options_(std::move(options)),
          outbox_(std::move(outbox)),
          job_(std::move(job)),
          observer_(std::move(observer)),
          tasks_(io_.get_executor(), {.on_failure = failure_logger(kComponent)}),
          resolver_(io_.get_executor(), public_lookup(options_.private_hosts)) {}

    ~ThreadedWebhookSender() override {
        if (thread_.joinable()) {
            asio::post(io_, [this] { tasks_.cancel(); });
            thread_.join();
        }
    }

    void add(std::string url, EndpointUrl parts, std::shared_ptr<asio::ssl::context> tls) {
        HttpPoolOptions pool;
        pool.user_agent = std::string("distilld/") + kVersion;
        pool.max_idle = 1;
        auto receiver = std::make_unique<Receiver>();
        receiver->url = std::move(url);
        receiver->parts = parts;
        receiver->pool = std::make_unique<HttpPool>(io_.get_executor(), resolver_, std::move(parts), std::move(tls),
                                                    std::make_shared<BufferPool>(kMaxReply),
                                                    std::make_shared<TrafficCounters>(), std::move(pool));
        receivers_.push_back(std::move(receiver));
    }

    void start() {
        for (const auto& receiver : receivers_) {
            static_cast<void>(tasks_.spawn(serve(*receiver)));
        }
        thread_ = std::thread([this] { io_.run(); });
    }

  private:
    asio::awaitable<void> serve(Receiver& receiver) {
        asio::steady_timer timer(io_);
        while (true) {
            std::chrono::nanoseconds pause = options_.pause;
            try {
                const bool sent = co_await send_next(receiver);
                if (sent) {
                    continue;
                }
            } catch (const ErrorException& error) {
                log::error(kComponent, error.what());
                pause = kStoreTrouble;
            }
            timer.expires_after(pause);
            co_await timer.async_wait(asio::use_awaitable);
        }
    }

    /// False: nothing is due.
    asio::awaitable<bool> send_next(Receiver& receiver) {
        auto event = outbox_->due(receiver.url, unix_now());
        if (!event) {
            co_return false;
        }
        if (receiver.delivered.contains(event->number)) {
            outbox_->remove(event->number);
            receiver.delivered.erase(event->number);
            co_return true;
        }
        if (event->body.empty()) {
            const auto job = co_await job_(event->job_id);
            if (!job) {
                log::info(kComponent, event->job_id + " was deleted before " + event->type + " could be sent");
                outbox_->remove(event->number);
                co_return true;
            }
            event->body = body_of(*event, *job);
            outbox_->set_body(event->number, event->body);
        }
        const Attempt attempt = co_await post(receiver, *event);
        record(receiver, *event, attempt);
        co_return true;
    }

    static std::string body_of(const WebhookEvent& event, const api::Job& job) {
        const json::object body{{"id", event.id},
                                {"type", event.type},
                                {"created_at", event.created_at},
                                {"data", api::to_json_object(job, false)}};
        return to_text(body);
    }

    asio::awaitable<Attempt> post(Receiver& receiver, const WebhookEvent& event) {
        const auto timestamp = static_cast<std::int64_t>(unix_now());
        HttpRequest request;
        request.target = receiver.parts.target();
        request.content_type = kJsonContentType;
        request.headers = {{"webhook-id", event.id},
                           {"webhook-timestamp", std::to_string(timestamp)},
                           {"webhook-signature", webhook_signature(options_.secrets, event.id, timestamp, event.body)}};
        request.body = std::make_shared<const std::string>(event.body);
        request.response_limit = kMaxReply;
        auto exchange = receiver.pool->request(std::move(request));
        const auto answer = co_await with_deadline(std::move(exchange), options_.timeout);
        Attempt attempt;
        if (!answer) {
            attempt.trouble = "no answer within " + number_text(to_seconds(options_.timeout)) + " s";
        } else if (!*answer) {
            attempt.trouble = without_path(answer->error().message, receiver.parts);
        } else {
            const auto& response = **answer;
            // Redirects are not followed, because the operator has not approved their target.
            attempt.delivered = is_success(response);
            attempt.final = response.status == kGone;
            attempt.trouble = "HTTP " + std::to_string(response.status);
            attempt.retry_after = std::min<std::chrono::nanoseconds>(
                response.retry_after.value_or(std::chrono::milliseconds(0)), kMaxRetryAfter);
        }
        co_return attempt;
    }

    void record(Receiver& receiver, const WebhookEvent& event, const Attempt& attempt) {
        if (attempt.delivered) {
            observer_("delivered");
            receiver.delivered.insert(event.number);
            outbox_->remove(event.number);
            receiver.delivered.erase(event.number);
            return;
        }
        const auto what = event.type + " of " + event.job_id + " to " + receiver.parts.host_header + ": ";
        if (attempt.final || event.attempts + 1 >= options_.tries) {
            observer_("given_up");
            log::error(kComponent,
                       what + attempt.trouble + "; given up after " + std::to_string(event.attempts + 1) + " attempts");
            outbox_->remove(event.number);
            return;
        }
        observer_("retried");
        const auto delay = kWebhookDelays[std::min<std::size_t>(event.attempts, kWebhookDelays.size() - 1)];
        const auto wait = std::max<std::chrono::nanoseconds>(delay, attempt.retry_after);
        const double seconds = to_seconds(wait) * (1 + kJitter * random_.uniform());
        log::warn(kComponent, what + attempt.trouble + "; again in " + number_text(to_seconds(wait)) + " s");
        outbox_->try_again(event.number, event.attempts + 1, unix_now() + seconds);
    }

    const WebhookOptions options_;
    const std::unique_ptr<WebhookOutbox> outbox_;
    const JobLookup job_;
    const AttemptObserver observer_;
    SplitMix64 random_{std::random_device{}()};
    asio::io_context io_{1};
    TaskGroup tasks_;
    HostResolver resolver_;
    std::vector<std::unique_ptr<Receiver>> receivers_;
    std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<WebhookSender>> make_webhook_sender(WebhookOptions options,
                                                           std::unique_ptr<WebhookOutbox> outbox, JobLookup job,
                                                           AttemptObserver observer) {
    const auto urls = options.urls;
    try {
        outbox->set_receivers(urls);
    } catch (const ErrorException& error) {
        return error.error();
    }
    auto sender = std::make_unique<ThreadedWebhookSender>(std::move(options), std::move(outbox), std::move(job),
                                                          std::move(observer));
    for (const auto& url : urls) {
        auto parts = parse_endpoint_url(url, "/");
        if (!parts) {
            return invalid_input("--webhook-url: " + parts.error().message);
        }
        std::shared_ptr<asio::ssl::context> tls;
        if (parts->tls) {
            auto made = make_tls_client_context();
            if (!made) {
                return made.error();
            }
            tls = *std::move(made);
        }
        sender->add(url, *std::move(parts), std::move(tls));
    }
    sender->start();
    return std::unique_ptr<WebhookSender>(std::move(sender));
}

}  // namespace distilld::webhooks
