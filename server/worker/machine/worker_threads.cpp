#include "server/worker/machine/worker_threads.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>

namespace distilld {

std::uint32_t decode_threads_for(std::uint32_t wanted, std::uint32_t cores) noexcept {
    return wanted > 0 ? wanted : std::max(1U, cores / 2);
}

void WorkerThreads::start_decoding(std::uint32_t threads) {
    decode_.emplace(threads);
    decode_threads_ = threads;
}

void WorkerThreads::start_replicas(std::uint32_t count, const std::function<void()>& first) {
    for (std::uint32_t i = 0; i < count; ++i) {
        boost::asio::thread_pool& replica = replicas_.emplace_back(1);
        boost::asio::post(replica, boost::asio::use_future([&first] { first(); })).get();
    }
}

GraphExecutors WorkerThreads::executors() {
    GraphExecutors executors{io.get_executor(), compute_.get_executor(), staging_.get_executor(), disk_.get_executor()};
    executors.decode = decode_ ? boost::asio::any_io_executor(decode_->get_executor()) : executors.staging;
    executors.decode_threads = std::max(1U, decode_threads_);
    for (boost::asio::thread_pool& replica : replicas_) {
        executors.replicas.emplace_back(replica.get_executor());
    }
    return executors;
}

void WorkerThreads::join() {
    compute_.join();
    staging_.join();
    disk_.join();
    if (decode_) {
        decode_->join();
    }
    for (boost::asio::thread_pool& replica : replicas_) {
        replica.join();
    }
}

}  // namespace distilld
