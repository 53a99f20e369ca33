#include "server/teacher/host_teacher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "pipeline/teacher/probe/probe_checks.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "tests/unit/server/teacher/fake_scorer.hpp"

namespace distilld::teacher {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint32_t kVocabulary = 10;

/// Distributions that pass a probe: half of the probability is the token's that was read.
class HalfReadBack final : public models::TeacherScorer {
  public:
    [[nodiscard]] const models::ServedModel& model() const override { return fake_.model(); }
    Result<models::ScoreResult> score(const models::ScoreRequest& request) override {
        threads.insert(std::this_thread::get_id());
        models::ScoreResult result;
        for (const std::int32_t id : request.input_ids) {
            result.topk_ids.push_back(static_cast<std::uint32_t>(id));
            result.topk_logprobs.push_back(0xB98C);  // log 0.5
            result.tail_logprob.push_back(-0.6934F);
            result.token_logprobs.push_back(-0.6934F);
        }
        return result;
    }

    std::set<std::thread::id> threads;

  private:
    FakeScorer fake_;
};

class HostTeacherTest : public testing::Test {
  protected:
    HostTeacherTest() {
        spec_.model_dir = "/models/small";
        spec_.top_k = 1;
        models::LocalModels local;
        local.model = [this](const TeacherSpec&, bool) -> Result<std::unique_ptr<models::TeacherScorer>> {
            ++loaded_;
            auto made = std::make_unique<HalfReadBack>();
            scorer_ = made.get();
            return made;
        };
        const models::LocalModels kept = host_.keeping(std::move(local));
        models::LocalTeacherOptions options;
        options.batch_columns = 4;
        options.thread = kept.thread;
        own_ = models::make_local_teacher(io_.get_executor(), spec_, kept.model, std::move(options));
    }
    ~HostTeacherTest() override {
        perform(host_.end());
        own_.reset();
        encode_.join();
    }

    template <class T>
    T perform(asio::awaitable<T> task) {
        std::future<T> done = asio::co_spawn(io_, std::move(task), asio::use_future);
        pump_until(done);
        return done.get();
    }
    template <class T>
    void pump_until(std::future<T>& done) {
        const auto work = asio::make_work_guard(io_);
        io_.restart();
        while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
            io_.run_one_for(std::chrono::milliseconds(20));
        }
    }

    std::unique_ptr<TeacherSource> asked_over_http(const HostTeacherPlace& place) {
        TeacherSpec spec = spec_;
        spec.model_dir.clear();
        spec.endpoints = {"http://127.0.0.1:" + std::to_string(place.port)};
        RemoteTeacherOptions options;
        options.start_deadline = std::chrono::milliseconds(500);
        options.bearer = place.key;
        return make_remote_teacher(io_.get_executor(), encode_.get_executor(), spec, std::move(options)).value();
    }

    std::string print_of(TeacherSource& teacher) {
        auto answer = perform(teacher.fetch(0, probe_tokens(kVocabulary, 1), std::chrono::seconds(60)));
        if (!answer) {
            return answer.error().message;
        }
        const auto targets = answer->decode();
        return targets ? teacher_fingerprint(*targets) : targets.error().message;
    }

    /// The answer to a request with these header lines, and with no more of a body than its announcement.
    std::string answer_to(std::uint16_t port, const std::string& line, const std::string& headers) {
        std::future<std::string> answer = std::async(std::launch::async, [=] {
            asio::io_context io;
            tcp::socket socket(io);
            socket.connect({asio::ip::address_v4::loopback(), port});
            asio::write(socket, asio::buffer(line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + headers +
                                             "\r\n"));
            std::string read;
            boost::system::error_code end;
            asio::read(socket, asio::dynamic_buffer(read), end);
            return read;
        });
        pump_until(answer);
        return answer.get();
    }

    int loaded_ = 0;
    HalfReadBack* scorer_ = nullptr;
    TeacherSpec spec_;
    asio::io_context io_{1};
    asio::thread_pool encode_{1};
    HostTeacher host_{io_.get_executor(), encode_.get_executor()};
    std::unique_ptr<TeacherSource> own_;
};

TEST_F(HostTeacherTest, OneModelOnOneThreadAnswersThisProcessAndOthersAlike) {
    const auto info = perform(own_->probe(kVocabulary));
    ASSERT_TRUE(info) << info.error().message;
    const Result<HostTeacherPlace> place = host_.serve();
    ASSERT_TRUE(place) << place.error().message;
    const auto other = asked_over_http(*place);
    const auto seen = perform(other->probe(kVocabulary));
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen->fingerprint, info->fingerprint);
    EXPECT_EQ(print_of(*other), print_of(*own_));
    EXPECT_EQ(loaded_, 1);
    EXPECT_EQ(scorer_->threads.size(), 1U);
    other->close();
}

TEST_F(HostTeacherTest, NothingIsAnsweredWithoutTheKey) {
    ASSERT_TRUE(perform(own_->probe(kVocabulary)));
    const Result<HostTeacherPlace> place = host_.serve();
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_GE(place->key.size(), 64U);
    for (const char* path : {"/v2", "/v2/models/teacher", "/v2/health/ready", "/metrics", "/v1/models", "/nothing"}) {
        for (const std::string& headers : {std::string(), std::string("Authorization: Bearer \r\n"),
                                           "Authorization: Bearer " + place->key.substr(1) + "\r\n",
                                           "Authorization: Basic " + place->key + "\r\n"}) {
            EXPECT_THAT(answer_to(place->port, std::string("GET ") + path, headers), HasSubstr("HTTP/1.1 401"))
                << path << " " << headers;
        }
    }
    const std::string large = "Content-Length: 100000000\r\nContent-Type: application/json\r\n";
    const std::string refused = answer_to(place->port, "POST /v2/models/teacher/infer", large);
    EXPECT_THAT(refused, HasSubstr("HTTP/1.1 401")) << "before the body is read";
    EXPECT_THAT(refused, Not(HasSubstr(place->key)));
    EXPECT_THAT(answer_to(place->port, "GET /v2", "Authorization: Bearer " + place->key + "\r\n"),
                HasSubstr("HTTP/1.1 200"));
}

TEST_F(HostTeacherTest, AfterItsEndOnlyThisProcessIsAnswered) {
    ASSERT_TRUE(perform(own_->probe(kVocabulary)));
    const Result<HostTeacherPlace> place = host_.serve();
    ASSERT_TRUE(place);
    const auto other = asked_over_http(*place);
    ASSERT_TRUE(perform(other->probe(kVocabulary)));
    const std::string print = print_of(*own_);
    perform(host_.end());
    EXPECT_THAT(print_of(*other), Not(print));
    EXPECT_EQ(print_of(*own_), print);
    other->close();
}

TEST_F(HostTeacherTest, ItDoesNotServeWhatIsNotLoaded) {
    EXPECT_FALSE(host_.serve());
}

}  // namespace
}  // namespace distilld::teacher
