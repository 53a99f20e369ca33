#pragma once

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/teacher/remote_teacher.hpp"
#include "tests/support/scripted_http_server.hpp"

namespace distilld::test {

/// Bytes of a file under tests/fixtures/teachers.
[[nodiscard]] std::string read_fixture(const std::string& name);

/// A batch of `rows` × `columns` with ids 1, 2, 3… below 100.
[[nodiscard]] std::shared_ptr<const TokenBatch> make_batch(std::uint32_t rows, std::uint32_t columns);

/// The prompt that the recordings answer: one sequence of ten tokens.
[[nodiscard]] std::shared_ptr<const TokenBatch> recorded_batch();

[[nodiscard]] TeacherSpec kserve_spec(const std::string& url, std::uint32_t top_k,
                                      const std::string& model = "teacher");

/// The answer of our own kind of teacher to a recorded request: k entries with log-probability −log(k + 1) each, ids
/// from input id on, the rest in the tail.
[[nodiscard]] ScriptedReply own_topk_reply(const SeenRequest& request);

/// Metadata of our own teacher, readiness, and `infer` for everything else.
[[nodiscard]] ScriptedHttpServer::Handler own_teacher(ScriptedHttpServer::Handler infer);

/// A port of 127.0.0.1 at which nobody listens.
[[nodiscard]] std::uint16_t unused_port();

/// An event loop and a decode thread.
struct Loop {
    boost::asio::io_context io;
    boost::asio::thread_pool decode{1};

    template <class T>
    T run(boost::asio::awaitable<T> task) {
        std::optional<T> result;
        std::exception_ptr failure;
        boost::asio::co_spawn(io, std::move(task), [&](std::exception_ptr error, T value) {
            failure = error;
            result.emplace(std::move(value));
        });
        io.restart();
        io.run();
        if (failure) {
            std::rethrow_exception(failure);
        }
        return std::move(*result);
    }

    /// The answer to a micro-batch, decoded on the thread that asks.
    [[nodiscard]] FetchResult<TeacherTargets> fetch(TeacherSource& teacher, std::size_t endpoint,
                                                    std::shared_ptr<const TokenBatch> tokens,
                                                    std::chrono::nanoseconds deadline) {
        auto answer = run(teacher.fetch(endpoint, std::move(tokens), deadline));
        if (!answer) {
            return answer.error();
        }
        const std::uint64_t wire_bytes = answer->wire_bytes();
        auto targets = answer->decode();
        EXPECT_TRUE(!targets || targets->wire_bytes == wire_bytes);
        return targets;
    }

    [[nodiscard]] Result<std::unique_ptr<TeacherSource>> teacher(const TeacherSpec& spec,
                                                                 RemoteTeacherOptions options = {}) {
        return make_remote_teacher(io.get_executor(), decode.get_executor(), spec, std::move(options));
    }
};

/// Elements of a float array, widened.
[[nodiscard]] std::vector<float> floats_of(const ArrayView& array);
[[nodiscard]] std::vector<std::uint32_t> ids_of(const ArrayView& array);

}  // namespace distilld::test
