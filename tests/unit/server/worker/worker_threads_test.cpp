#include "server/worker/machine/worker_threads.hpp"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <latch>

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

}  // namespace
}  // namespace distilld
