#include "models/ranks/rank_group.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstddef>
#include <functional>
#include <future>
#include <iterator>
#include <latch>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace distilld::models {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A port that nobody listens on, most likely until the test ends.
std::uint16_t free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
    ::close(socket);
    return ntohs(address.sin_port);
}

/// Nobody is lost on a busy machine, where a thread may wait for seconds.
constexpr RankPatience kPatient{.join = milliseconds(60'000),
                                .heartbeat = milliseconds(50),
                                .silence = milliseconds(20'000),
                                .link = milliseconds(20'000),
                                .leave = milliseconds(20'000)};
constexpr RankPatience kImpatient{.join = milliseconds(60'000),
                                  .heartbeat = milliseconds(50),
                                  .silence = milliseconds(1'000),
                                  .link = milliseconds(2'000),
                                  .leave = milliseconds(1'000)};

RankPlace place(std::uint32_t rank, std::uint32_t count, std::uint16_t port) {
    return {.rank = rank, .count = count, .host = "127.0.0.1", .port = port};
}

using Work = std::function<void(RankGroup&)>;

/// Joins `count` ranks, each with a thread for `work`.
void on_ranks(std::uint32_t count, const Work& work, const std::vector<RankPatience>& patience = {}) {
    const std::uint16_t port = free_port();
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
        threads.emplace_back([&, rank] {
            auto group =
                RankGroup::join(place(rank, count, port), {}, {}, patience.empty() ? kPatient : patience[rank]);
            ASSERT_TRUE(group) << group.error().message;
            work(**group);
        });
    }
}

std::string words_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const RankLost& lost) {
        return lost.what();
    }
    return "nothing was thrown";
}

std::uint64_t receive_number(RankGroup& group, std::uint32_t from) {
    std::uint64_t number = 0;
    group.receive(std::as_writable_bytes(std::span(&number, 1)), from);
    return number;
}

void send_number(RankGroup& group, std::uint64_t number, std::uint32_t to) {
    group.send(std::as_bytes(std::span(&number, 1)), to);
}

TEST(RankGroup, SendsBytesInOrder) {
    on_ranks(2, [](RankGroup& group) {
        if (group.rank() == 0) {
            send_number(group, 7, 1);
            send_number(group, 8, 1);
            group.send({}, 1);
            EXPECT_EQ(receive_number(group, 1), 15U);
        } else {
            const std::uint64_t first = receive_number(group, 0);
            EXPECT_EQ(first, 7U);
            const std::uint64_t second = receive_number(group, 0);
            group.receive({}, 0);
            send_number(group, first + second, 0);
        }
    });
}

TEST(RankGroup, SendsFromTheFirstToAllAndFromAllToAll) {
    for (const std::uint32_t count : {2, 3, 5}) {
        std::barrier received(count);  // before rank 0 leaves
        on_ranks(count, [&](RankGroup& group) {
            std::vector<int> numbers(100'000, group.rank() == 0 ? 3 : 0);
            group.broadcast(std::as_writable_bytes(std::span(numbers)));
            EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0), 300'000) << "rank " << group.rank();
            const std::vector<std::string> all = group.gather(std::string(group.rank(), 'x'));
            ASSERT_EQ(all.size(), count);
            for (std::uint32_t rank = 0; rank < count; ++rank) {
                EXPECT_EQ(all[rank], std::string(rank, 'x'));
            }
            received.arrive_and_wait();
        });
    }
}

TEST(RankGroup, AsksRank0ToStop) {
    const std::uint16_t port = free_port();
    std::promise<void> stopped;
    std::jthread first([&] {
        auto group = RankGroup::join(place(0, 2, port), {}, {}, kPatient, [&stopped] { stopped.set_value(); });
        ASSERT_TRUE(group) << group.error().message;
        ASSERT_EQ(stopped.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
        send_number(**group, 7, 1);
        EXPECT_EQ(receive_number(**group, 1), 8U);
    });
    auto group = RankGroup::join(place(1, 2, port), {}, {}, kPatient);
    ASSERT_TRUE(group) << group.error().message;
    (*group)->ask_to_stop();
    (*group)->ask_to_stop();
    EXPECT_EQ(receive_number(**group, 0), 7U) << "nobody is lost";
    send_number(**group, 8, 0);
}

TEST(RankGroup, TellsTheOthersWhyARankHasFailed) {
    std::barrier joined(3);
    on_ranks(3, [&joined](RankGroup& group) {
        joined.arrive_and_wait();
        if (group.rank() == 1) {
            group.fail("its disk is full");
            return;
        }
        EXPECT_EQ(words_of([&] { receive_number(group, 1); }), "rank 1 of 3 has failed: its disk is full");
    });
}

TEST(RankGroup, EndsWithTheFirstRank) {
    on_ranks(2, [](RankGroup& group) {
        if (group.rank() == 0) {
            group.leave();
            return;
        }
        try {
            receive_number(group, 0);
            ADD_FAILURE() << "nothing was sent";
        } catch (const RankLost& lost) {
            EXPECT_TRUE(lost.left());
            EXPECT_STREQ(lost.what(), "rank 0 of 2 has ended the run");
        }
    });
}

TEST(RankGroup, GoesOnWithoutThoseThatHaveLeft) {
    on_ranks(3, [](RankGroup& group) {
        if (group.rank() == 2) {
            group.leave();
            return;
        }
        for (std::uint64_t i = 0; i < 20; ++i) {  // many heartbeats
            if (group.rank() == 0) {
                send_number(group, i, 1);
                std::this_thread::sleep_for(kPatient.heartbeat);
            } else {
                EXPECT_EQ(receive_number(group, 0), i);
            }
        }
    });
}

TEST(RankGroup, LosesARankThatIsSilent) {
    RankPatience silent = kImpatient;
    silent.heartbeat = milliseconds(60'000);
    std::promise<void> seen;
    on_ranks(2,
             [&](RankGroup& group) {
                 if (group.rank() == 1) {
                     seen.get_future().wait();
                     return;
                 }
                 EXPECT_EQ(words_of([&] { receive_number(group, 1); }), "rank 1 of 2 is lost: nothing is heard of it");
                 seen.set_value();
             },
             {kImpatient, silent});
}

/// Makes the kernel drop what reaches this process on connections over IP, but not from or to the port.
void drop_all_but(std::uint16_t port) {
    const auto port_of = [](auto&& read, int socket) {
        sockaddr_in address{};
        socklen_t size = sizeof(address);
        return read(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.sin_family == AF_INET
                   ? std::optional(ntohs(address.sin_port))
                   : std::nullopt;
    };
    sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{.len = 1, .filter = &nothing};
    std::size_t cut = 0;
    for (int socket = 0; socket < 1024; ++socket) {
        const auto peer = port_of(::getpeername, socket);
        if (peer && peer != port && port_of(::getsockname, socket) != port) {
            EXPECT_EQ(::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
            ++cut;
        }
    }
    EXPECT_EQ(cut, 2U) << "both ends of the link";
}

TEST(RankGroup, LosesARankBehindASilentLinkThoughBothReachTheStore) {
    const std::uint16_t port = free_port();
    std::barrier joined(2);
    std::barrier cut(2);
    std::array<std::string, 2> words;
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            const auto group = RankGroup::join(place(rank, 2, port), {}, {}, kImpatient);
            ASSERT_TRUE(group) << group.error().message;
            joined.arrive_and_wait();
            if (rank == 0) {
                drop_all_but(port);
            }
            cut.arrive_and_wait();
            // Rank 0 has sent nothing, so only probes find out.
            words[rank] = words_of([&] { receive_number(**group, 1 - rank); });
        });
    }
    threads.clear();
    EXPECT_EQ(words[0], words[1]);
    EXPECT_THAT(words[0], AnyOf(HasSubstr("rank 0 of 2 is lost: its connection to rank 1 of 2 has ended"),
                                HasSubstr("rank 1 of 2 is lost: its connection to rank 0 of 2 has ended")));
}

TEST(RankGroup, TellsWhoeverJoinedOfALoss) {
    const std::uint16_t port = free_port();
    std::promise<std::string> told;
    std::jthread other([port] {
        auto group = RankGroup::join(place(1, 2, port), {}, {}, kPatient);
        ASSERT_TRUE(group) << group.error().message;
        (*group)->fail("a reason");
    });
    const auto group = RankGroup::join(
        place(0, 2, port), [&told](const RankLost& lost) { told.set_value(lost.what()); }, {}, kPatient);
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ(told.get_future().get(), "rank 1 of 2 has failed: a reason");
}

TEST(RankGroup, NamesTheRanksThatDoNotCome) {
    RankPatience short_of_time = kImpatient;
    short_of_time.join = milliseconds(1'000);
    const auto group = RankGroup::join(place(0, 3, free_port()), {}, {}, short_of_time);
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().message, "of 3 ranks, these have not come within 1 s: 1, 2");
}

/// What these say who fail to join. Whoever joins stays until all have tried: the store ends with rank 0.
std::vector<std::string> refusals(const std::vector<RankPlace>& places) {
    std::latch tried(std::ssize(places));
    std::vector<std::future<std::string>> joining;
    for (const RankPlace& one : places) {
        joining.push_back(std::async(std::launch::async, [one, &tried] {
            const auto group = RankGroup::join(one, {}, {}, kPatient);
            tried.arrive_and_wait();
            return group ? std::string() : group.error().message;
        }));
    }
    std::vector<std::string> words;
    for (std::future<std::string>& one : joining) {
        words.push_back(one.get());
    }
    return words;
}

TEST(RankGroup, RefusesAnotherNumberOfRanks) {
    const std::uint16_t port = free_port();
    const std::vector<std::string> words = refusals({place(0, 2, port), place(1, 3, port)});
    for (const std::string& one : words) {
        EXPECT_THAT(one, HasSubstr("start the same version of distilld with the same number of ranks"));
    }
}

TEST(RankGroup, RefusesASecondProcessOfARank) {
    const std::uint16_t port = free_port();
    const std::vector<std::string> words = refusals({place(0, 2, port), place(1, 2, port), place(1, 2, port)});
    EXPECT_THAT(words, testing::Contains(HasSubstr("rank 1 of 2 has joined before")).Times(1));
}

TEST(RankGroup, StopsWaitingOnRequest) {
    const auto group = RankGroup::join(place(0, 2, free_port()), {}, [] { return true; }, kImpatient);
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().kind, ErrorKind::cancelled);
}

}  // namespace
}  // namespace distilld::models
