#include "server/supervisor/slurm/slurm_place.hpp"

#include <utility>

#include "server/supervisor/slurm/batch_script.hpp"

namespace distilld::slurm {

namespace asio = boost::asio;

Place::Place(const Commands& commands, Queue& queue, PlaceOptions options)
    : commands_(commands), queue_(queue), options_(std::move(options)), name_(job_name(options_.attempt)) {}

asio::awaitable<Result<void>> Place::begin() {
    const JobSpec& spec = *options_.spec;
    const auto id = co_await commands_.submit(batch_options(spec, name_, options_.log), batch_script(options_.command));
    if (!id) {
        co_return id.error();
    }
    id_ = *id;
    co_return Result<void>();
}

asio::awaitable<JobEnd> Place::ended(PlaceWait waits) {
    if (!id_) {
        co_return JobEnd{EndCause::not_started, "the job was not submitted to Slurm"};
    }
    co_return co_await queue_.ended(*id_, options_.log, std::move(waits));
}

asio::awaitable<Result<void>> Place::cancel() {
    if (id_) {
        co_return co_await commands_.cancel(*id_);
    }
    co_return co_await commands_.cancel_named(name_);
}

}  // namespace distilld::slurm
