#include "server/teacher/teacher_server.hpp"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/files/open_file.hpp"
#include "base/join.hpp"
#include "models/serving/local_engine.hpp"
#include "models/serving/teacher_engine.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/http/http_server.hpp"
#include "server/support/exit_codes.hpp"
#include "server/support/log.hpp"
#include "server/teacher/score_queue.hpp"
#include "server/teacher/teacher_metrics.hpp"
#include "server/teacher/teacher_security.hpp"
#include "server/teacher/teacher_service.hpp"

namespace distilld {

namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::hours kLongestAnswer{1};
constexpr std::uint64_t kBodyBase = 64U << 10;
constexpr std::uint64_t kBodyBytesPerToken = 24;
constexpr std::uint64_t kBodyOfSamples = 64U << 20;

int complain(const std::string& message, int code) {
    std::cerr << "distilld teacher: " << message << std::endl;
    return code;
}

/// The state of one run; the event loop is the main thread.
class TeacherProgram {
  public:
    explicit TeacherProgram(const TeacherOptions& options)
        : options_(options),
          queue_(io_.get_executor(), compute_.get_executor(),
                 {options.max_queue, options.max_batch_tokens, options.request_timeout}, metrics_),
          generation_(io_.get_executor(), compute_.get_executor(), {options.max_queue, options.request_timeout},
                      metrics_),
          service_(encode_.get_executor(), queue_, &generation_, metrics_, service_options(options)),
          signals_(io_, SIGINT, SIGTERM) {}

    int run() {
        http::ServerOptions server_options;
        server_options.listen = options_.listen;
        server_options.hosts = options_.hosts;
        server_options.body_limit = service_options(options_).limits.max_body_bytes;
        // The queues time out first, with an answer in the protocol's own form. A long answer takes its time.
        server_options.handler_timeout =
            options_.request_timeout + std::chrono::ceil<std::chrono::seconds>(options_.delay) + kLongestAnswer;
        if (const Result<void> guarded = teacher::guard_server(server_options, options_); !guarded) {
            return complain(guarded.error().message, kWrongUsage);
        }
        auto server = http::make_server(io_.get_executor(), server_options, service_.routes(), service_.observer());
        if (!server) {
            return complain(server.error().message,
                            server.error().kind == ErrorKind::invalid_input ? kWrongUsage : kFailed);
        }
        server_ = std::move(*server);
        std::exception_ptr failure;
        asio::co_spawn(io_, serve(), [&failure](const std::exception_ptr& thrown) { failure = thrown; });
        io_.run();
        compute_.join();
        encode_.join();
        if (failure) {
            std::rethrow_exception(failure);
        }
        return exit_code_;
    }

  private:
    static teacher::TeacherServiceOptions service_options(const TeacherOptions& options) {
        teacher::TeacherServiceOptions made;
        made.model_name = options.model_name;
        made.delay = options.delay;
        made.max_adapters = options.max_adapters;
        made.limits.max_tokens = options.max_batch_tokens;
        made.limits.max_body_bytes = options.body_limit;
        if (options.body_limit == 0) {
            made.limits.max_body_bytes =
                options.outputs.empty() ? kBodyBase + kBodyBytesPerToken * options.max_batch_tokens : kBodyOfSamples;
        }
        made.limits.max_answer_bytes = options.response_limit;
        made.max_held_bytes = 2 * options.response_limit;
        return made;
    }

    asio::awaitable<void> serve() {
        TaskGroup tasks(io_.get_executor());
        static_cast<void>(tasks.spawn(queue_.run()));
        static_cast<void>(tasks.spawn(generation_.run()));
        static_cast<void>(tasks.spawn(watch_signals()));
        static_cast<void>(tasks.spawn(load()));
        co_await server_->run();
        queue_.stop();
        generation_.stop();
        signals_.cancel();
        co_await tasks.join();
    }

    /// On the compute thread.
    Result<void> read_model() {
        if (options_.outputs.empty()) {
            models::TeacherEngineOptions engine;
            engine.dtype = options_.dtype;
            engine.threads = options_.threads;
            engine.generation = {options_.max_sequences, options_.max_cached_tokens};
            auto loaded = models::load_teacher_engine(options_.model, engine);
            if (!loaded) {
                return loaded.error();
            }
            scorer_ = std::move(*loaded);
            text_ = teacher::load_served_text(options_.model);
            return {};
        }
        TeacherSpec spec;
        spec.module = options_.model.string();
        spec.inputs = options_.inputs;
        spec.outputs = options_.outputs;
        spec.dtype = options_.dtype;
        spec.threads = options_.threads;
        auto loaded = models::load_module_engine(spec, {"MODEL", "--"}, "auto");
        if (!loaded) {
            return loaded.error();
        }
        module_ = std::move(*loaded);
        return {};
    }

    asio::awaitable<void> load() {
        auto read = [this] { return read_model(); };
        std::string problem;
        try {
            const Result<void> loaded = co_await run_on(compute_.get_executor(), std::move(read));
            problem = loaded ? "" : loaded.error().message;
        } catch (const std::exception& error) {
            problem = "cannot load " + options_.model.string() + ": " + error.what();
        }
        if (!problem.empty()) {
            exit_code_ = complain(problem, kFailed);
            server_->stop(std::chrono::seconds(0));
            co_return;
        }
        std::string answers;
        if (module_ != nullptr) {
            service_.set_module(*module_, {options_.inputs, options_.outputs});
            answers = "outputs " + joined(options_.outputs);
        } else {
            if (auto rule = teacher::adapter_rule(options_)) {
                confine_files(std::move(*rule));
            }
            service_.set_model(*scorer_, &text_);
            answers = "vocabulary " + std::to_string(scorer_->model().vocabulary_size);
        }
        const models::ServedModel& model = module_ != nullptr ? module_->model() : scorer_->model();
        std::vector<std::string> warnings = model.warnings;
        warnings.insert(warnings.end(), text_.warnings.begin(), text_.warnings.end());
        for (const std::string& warning : warnings) {
            log::warn("teacher", warning);
        }
        std::cout << "distilld teacher: " << options_.model.string() << " ready on "
                  << (options_.tls_key.empty() ? "http://" : "https://") << server_->address() << " ("
                  << model.parameters << " parameters, " << answers << ", " << model.dtype << " on " << model.device
                  << ", threads " << model.threads;
        if (options_.delay.count() > 0) {
            std::cout << ", answers delayed " << options_.delay.count() << " ms";
        }
        std::cout << ")" << std::endl;
    }

    /// The first signal stops the server, a second one ends the process.
    asio::awaitable<void> watch_signals() {
        const auto first = co_await signals_.async_wait(kTuple);
        if (std::get<0>(first)) {
            co_return;
        }
        if (scorer_ == nullptr && module_ == nullptr) {
            // Loading cannot be interrupted, and there is nothing to finish.
            std::_Exit(kDone);
        }
        log::info("teacher", "stopping: requests in progress have " + std::to_string(kGrace.count()) + " s");
        server_->stop(kGrace);
        const auto second = co_await signals_.async_wait(kTuple);
        if (!std::get<0>(second)) {
            std::_Exit(128 + std::get<1>(second));
        }
    }

    TeacherOptions options_;
    // Members are destroyed in reverse order, so none outlives what it refers to.
    std::unique_ptr<models::TeacherScorer> scorer_;  ///< of a folder
    std::unique_ptr<models::TeacherModule> module_;  ///< of a TorchScript file
    teacher::ServedText text_;
    teacher::TeacherMetrics metrics_;
    asio::io_context io_{1};
    asio::thread_pool compute_{1};
    asio::thread_pool encode_{1};
    teacher::ScoreQueue queue_;
    teacher::GenerationQueue generation_;
    teacher::TeacherService service_;
    std::unique_ptr<http::Server> server_;
    asio::signal_set signals_;
    int exit_code_ = kDone;
};

}  // namespace

int run_teacher_server(const TeacherOptions& options) {
    std::error_code ignored;
    const std::string model = options.model.string();
    if (!std::filesystem::exists(options.model, ignored)) {
        return complain(model + " does not exist", kFailed);
    }
    const bool is_folder = std::filesystem::is_directory(options.model, ignored);
    if (!is_folder && (options.inputs.empty() || options.outputs.empty())) {
        return complain(model + " is a file: a TorchScript file needs --inputs and --outputs, other models are folders",
                        kWrongUsage);
    }
    if (is_folder && !(options.inputs.empty() && options.outputs.empty())) {
        return complain(model + " is a folder: --inputs and --outputs describe a TorchScript file", kWrongUsage);
    }
    try {
        return TeacherProgram(options).run();
    } catch (const std::exception& error) {
        return complain(error.what(), kFailed);
    }
}

}  // namespace distilld
