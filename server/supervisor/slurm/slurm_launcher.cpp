#include "server/supervisor/slurm/slurm_launcher.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/ascii.hpp"
#include "server/supervisor/remote_worker.hpp"
#include "server/supervisor/slurm/slurm_place.hpp"
#include "server/supervisor/slurm/slurm_queue.hpp"
#include "server/support/log.hpp"

namespace distilld::slurm {
namespace {

namespace asio = boost::asio;

/// Of one attempt; its name is Slurm's id of the job.
class PlaceOnSlurm final : public distilld::Place {
  public:
    PlaceOnSlurm(asio::any_io_executor executor, const SlurmOptions& options, Queue& queue, const Attempt& attempt)
        : executor_(std::move(executor)),
          options_(options),
          queue_(queue),
          spec_(attempt.spec ? attempt.spec : std::make_shared<const JobSpec>()),
          name_(job_name({attempt.job_id, attempt.number})),
          job_(make_job({attempt.job_id, attempt.number}, {})) {
        if (const auto id = number_from<std::uint64_t>(attempt.record->stored().place)) {
            job_->adopt(*id);
        }
    }

    asio::awaitable<Result<std::string>> begin(RelayOrder order) override {
        auto token = options_.folder.keep(name_, order.token);
        if (!token) {
            co_return token.error();
        }
        std::vector<std::string> command{
            options_.program.string(), "attempt", "--service", options_.url, "--token-file", token->string()};
        if (!options_.ca_file.empty()) {
            command.insert(command.end(), {"--ca-file", options_.ca_file.string()});
        }
        job_ = make_job(order.attempt, std::move(command));
        const auto begun = co_await job_->begin();
        if (!begun) {
            cancel();  // Slurm may have accepted it
            forget();
            co_return begun.error();
        }
        co_return std::to_string(*job_->id());
    }

    void tell_of_waits(PlaceWait waits) override { waits_ = std::move(waits); }

    asio::awaitable<PlaceEnd> ended() override {
        if (!job_->id()) {
            cancel();  // the service ended while it submitted the job
        }
        const JobEnd end = co_await job_->ended(waits_);
        co_return PlaceEnd{end.failure_kind(), end.words};
    }

    void cancel() override { asio::co_spawn(executor_, cancelled(job_), tell_of_failure); }

    void forget() override {
        if (const auto forgotten = options_.folder.forget(name_); !forgotten) {
            log::warn("slurm", forgotten.error().message);
        }
    }

  private:
    std::shared_ptr<slurm::Place> make_job(JobAttempt attempt, std::vector<std::string> command) const {
        PlaceOptions place{std::move(attempt), spec_, std::move(command), options_.folder.log_of(name_).string()};
        return std::make_shared<slurm::Place>(options_.commands, queue_, std::move(place));
    }

    static asio::awaitable<void> cancelled(std::shared_ptr<slurm::Place> job) {
        if (const auto done = co_await job->cancel(); !done) {
            log::warn("slurm", done.error().message);
        }
    }

    static void tell_of_failure(const std::exception_ptr& failure) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    }

    asio::any_io_executor executor_;
    const SlurmOptions& options_;
    Queue& queue_;
    std::shared_ptr<const JobSpec> spec_;
    std::string name_;
    PlaceWait waits_;
    std::shared_ptr<slurm::Place> job_;  // shared with its cancellation
};

class SlurmLauncher final : public Launcher {
  public:
    SlurmLauncher(SlurmOptions options, RemoteAttempts& attempts) : options_(std::move(options)), attempts_(attempts) {}

    std::unique_ptr<WorkerProcess> make(asio::any_io_executor executor, const Attempt& attempt) override {
        return worker(std::move(executor), attempt, /*adopted=*/false);
    }
    [[nodiscard]] bool outlives_service() const override { return true; }
    std::unique_ptr<WorkerProcess> adopt(asio::any_io_executor executor, const Attempt& attempt) override {
        return worker(std::move(executor), attempt, /*adopted=*/true);
    }
    void all_adopted() override { attempts_.complete(); }

    asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> running) override {
        co_return co_await queue_on(co_await asio::this_coro::executor).nodes(std::move(running));
    }

  private:
    /// All calls come on one executor.
    Queue& queue_on(asio::any_io_executor executor) {
        if (!queue_) {
            queue_.emplace(options_.commands, std::move(executor));
        }
        return *queue_;
    }

    std::unique_ptr<WorkerProcess> worker(asio::any_io_executor executor, const Attempt& attempt, bool adopted) {
        const auto make_worker = [&](WorkerOutput::LineSink sink) {
            RemoteWorkerOptions remote;
            remote.attempt = {attempt.job_id, attempt.number};
            remote.record = attempt.record;
            remote.place = std::make_unique<PlaceOnSlurm>(executor, options_, queue_on(executor), attempt);
            remote.adopted = adopted;
            remote.output = std::move(sink);
            return make_remote_worker(executor, attempts_, std::move(remote));
        };
        return options_.with_log(make_worker, adopted);
    }

    SlurmOptions options_;
    RemoteAttempts& attempts_;
    std::optional<Queue> queue_;
};

}  // namespace

std::unique_ptr<Launcher> make_slurm_launcher(SlurmOptions options, RemoteAttempts& attempts) {
    return std::make_unique<SlurmLauncher>(std::move(options), attempts);
}

}  // namespace distilld::slurm
