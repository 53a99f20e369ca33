#include "server/worker/machine/worker_threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <latch>
#include <set>
#include <thread>

namespace distilld {
namespace {

TEST(WorkerThreads, HalfTheCoresDecodeUnlessAnotherNumberIsWanted) {
    EXPECT_EQ(decode_threads_for(0, 1), 1U);
    EXPECT_EQ(decode_threads_for(0, 2), 1U);
    EXPECT_EQ(decode_threads_for(0, 16), 8U);
    EXPECT_EQ(decode_threads_for(0, 0), 1U) << "the number of cores is not known";
    EXPECT_EQ(decode_threads_for(3, 16), 3U);
}

TEST(WorkerThreads, AsManyAnswersAreDecodedAtATimeAsThereAreThreads) {
    WorkerThreads threads;
    EXPECT_EQ(threads.executors().decode, threads.executors().staging) << "none is started yet";
    threads.start_decoding(3);
    const GraphExecutors executors = threads.executors();
    EXPECT_EQ(executors.decode_threads, 3U);
    std::latch together(3);  // nobody gets past it alone
    for (int i = 0; i < 3; ++i) {
        boost::asio::post(executors.decode, [&together] { together.arrive_and_wait(); });
    }
    threads.join();
    EXPECT_TRUE(together.try_wait());
}

TEST(WorkerThreads, EachReplicaHasAThreadThatIsPreparedFirst) {
    WorkerThreads threads;
    EXPECT_TRUE(threads.executors().replicas.empty());
    std::set<std::thread::id> prepared;
    threads.start_replicas(3, [&prepared] { prepared.insert(std::this_thread::get_id()); });
    EXPECT_EQ(prepared.size(), 3U);
    std::latch together(3);
    std::atomic<int> strangers = 0;
    for (const boost::asio::any_io_executor& replica : threads.executors().replicas) {
        boost::asio::post(replica, [&] {
            strangers += prepared.contains(std::this_thread::get_id()) ? 0 : 1;
            together.arrive_and_wait();
        });
    }
    threads.join();
    EXPECT_TRUE(together.try_wait());
    EXPECT_EQ(strangers, 0);
}

}  // namespace
}  // namespace distilld
