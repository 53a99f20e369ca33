#include "server/teacher/host_teacher.hpp"

#include <chrono>
#include <span>
#include <string_view>
#include <utility>

#include "base/random_hex.hpp"
#include "base/sha256.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/http/authenticator.hpp"

namespace distilld::teacher {

namespace asio = boost::asio;

namespace {

constexpr const char* kLoopback = "127.0.0.1";
// Only ranks of the same job ask, so the limits need not protect this process: a model that is not shared has none. A
// request must not be split, because the bits of a row may depend on the number of rows.
constexpr std::uint64_t kMaxPositions = std::uint64_t{1} << 24U;
constexpr std::uint64_t kMaxBodyBytes = (std::uint64_t{64} << 10U) + 24 * kMaxPositions;
constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{1} << 42U;
constexpr int kKeyWords = 8;  ///< of 32 bits

/// Accepts one key.
class OneKey final : public http::Authenticator {
  public:
    explicit OneKey(const std::string& key) : header_hash_(sha256_text("Bearer " + key)) {}

    http::Authentication judge(const http::RequestHead& head) override {
        // Hashes are compared, so that the time tells nothing about the key.
        const auto given = head.request.header("authorization");
        http::Authentication verdict;
        if (given && sha256_text(*given) == header_hash_) {
            verdict.caller = http::Caller{"rank", http::Role::submit, {}};
            return verdict;
        }
        verdict.refusal.emplace();
        verdict.refusal->status = 401;
        verdict.refusal->headers.emplace_back("WWW-Authenticate", "Bearer realm=\"distilld\"");
        verdict.refusal->body = error_body("this teacher answers only the ranks of its job");
        return verdict;
    }

    std::optional<http::Response> revocation(const http::Caller&) override { return std::nullopt; }

  private:
    std::string header_hash_;
};

/// The model as this process's own teacher sees it.
class SharedScorer final : public models::TeacherScorer {
  public:
    explicit SharedScorer(std::shared_ptr<models::TeacherScorer> scorer) : scorer_(std::move(scorer)) {}

    const models::ServedModel& model() const override { return scorer_->model(); }
    Result<models::ScoreResult> score(const models::ScoreRequest& request) override { return scorer_->score(request); }

  private:
    std::shared_ptr<models::TeacherScorer> scorer_;
};

TeacherServiceOptions service_options() {
    TeacherServiceOptions options;
    options.limits = {kMaxPositions, kMaxBodyBytes, kMaxAnswerBytes};
    options.max_held_bytes = kMaxAnswerBytes;
    return options;
}

ScoreQueueOptions queue_options() {
    ScoreQueueOptions options;
    options.timeout = models::kLocalDeadline;
    return options;
}

}  // namespace

HostTeacher::HostTeacher(asio::any_io_executor io, asio::any_io_executor encode)
    : io_(std::move(io)),
      queue_(io_, thread_->get_executor(), queue_options(), metrics_),
      service_(std::move(encode), queue_, nullptr, metrics_, service_options()),
      tasks_(io_) {}

models::LocalModels HostTeacher::keeping(models::LocalModels local) {
    local.thread = thread_;
    local.model = [this, load = std::move(local.model)](
                      const TeacherSpec& spec, bool with_head) -> Result<std::unique_ptr<models::TeacherScorer>> {
        Result<std::unique_ptr<models::TeacherScorer>> loaded = load(spec, with_head);
        if (!loaded) {
            return loaded;
        }
        scorer_ = std::move(*loaded);
        return std::unique_ptr<models::TeacherScorer>(std::make_unique<SharedScorer>(scorer_));
    };
    return local;
}

Result<HostTeacherPlace> HostTeacher::serve() {
    if (!scorer_) {
        return Error{ErrorKind::internal, "the teacher for the ranks of this host is not loaded"};
    }
    HostTeacherPlace place;
    place.key = random_hex(kKeyWords);
    http::ServerOptions options;
    options.listen = std::string(kLoopback) + ":0";
    options.authenticator = std::make_shared<OneKey>(place.key);
    options.body_limit = kMaxBodyBytes;
    options.handler_timeout = models::kLocalDeadline;
    auto server = http::make_server(io_, std::move(options), service_.routes(), service_.observer());
    if (!server) {
        return Error{server.error().kind, "the teacher cannot be shared with other ranks: " + server.error().message};
    }
    server_ = std::move(*server);
    const std::string& address = server_->address();
    place.port = static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
    service_.set_model(*scorer_);
    static_cast<void>(tasks_.spawn(queue_.run()));
    static_cast<void>(tasks_.spawn(server_->run()));
    return place;
}

asio::awaitable<void> HostTeacher::end() {
    if (server_) {
        server_->stop(std::chrono::seconds(0));
        queue_.stop();
        co_await tasks_.join();
        server_.reset();
    }
    // Memory of the model is freed where it was taken.
    auto let_go = [this] { scorer_.reset(); };
    co_await run_on(thread_->get_executor(), std::move(let_go));
}

}  // namespace distilld::teacher
