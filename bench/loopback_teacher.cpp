#include "bench/loopback_teacher.hpp"

#include <array>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/object.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/half_float.hpp"
#include "base/json_text.hpp"
#include "base/random.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "server/http/http_server.hpp"

namespace distilld::bench {

namespace asio = boost::asio;

namespace {

constexpr std::uint64_t kIdBase = 128;

http::Response error_response(unsigned status, const std::string& message) {
    http::Response response;
    response.status = status;
    response.body = to_text(boost::json::object{{"error", message}});
    return response;
}

/// Half an answer, and then nothing more.
class BrokenStream final : public http::BodyStream {
  public:
    asio::awaitable<std::optional<std::string>> next() override {
        if (std::exchange(begun_, true)) {
            throw std::runtime_error("broken off on purpose");
        }
        co_return std::string("half an");
    }

  private:
    bool begun_ = false;
};

class LatencyTeacher final : public LoopbackTeacher {
  public:
    explicit LatencyTeacher(LoopbackTeacherOptions options) : options_(std::move(options)) {
        http::ServerOptions server;
        server.body_limit = 64U << 20U;
        for (std::uint32_t i = 0; i < options_.endpoints; ++i) {
            const bool last = i + 1 == options_.endpoints;
            servers_.push_back(http::make_server(io_.get_executor(), server,
                                                 routes(last ? options_.slow_factor : 1.0,
                                                        last ? options_.fault : EndpointFault::none))
                                   .value());
            urls_.push_back("http://" + servers_.back()->address());
            asio::co_spawn(io_, servers_.back()->run(), [](const std::exception_ptr&) {});
        }
        thread_ = std::thread([this] { io_.run(); });
    }

    ~LatencyTeacher() override {
        asio::post(io_, [this] {
            for (const auto& server : servers_) {
                server->stop(std::chrono::seconds(0));
            }
        });
        thread_.join();
    }

    const std::vector<std::string>& urls() const override { return urls_; }
    std::uint64_t requests() const override { return requests_.load(); }

  private:
    std::vector<http::Route> routes(double factor, EndpointFault fault) {
        std::vector<http::Route> routes;
        routes.push_back({"GET", "/v2/health/ready",
                          [](http::Request) -> asio::awaitable<http::Response> { co_return http::Response{}; }});
        routes.push_back({"GET", "/v2/models/{model}",
                          [](http::Request) -> asio::awaitable<http::Response> { co_return metadata(); }});
        routes.push_back({"POST", "/v2/models/{model}/infer", [this, factor, fault](http::Request request) {
                              return infer(std::move(request), factor, fault);
                          }});
        return routes;
    }

    static http::Response metadata() {
        kserve::ModelMetadata model;
        model.name = "teacher";
        model.inputs = {{"input_ids", "INT32", {-1, -1}}, {"seq_lens", "INT32", {-1}}};
        model.outputs = {{"topk_ids", "UINT32", {-1, -1, -1}},
                         {"topk_logprobs", "FP16", {-1, -1, -1}},
                         {"tail_logprob", "FP32", {-1, -1}}};
        http::Response response;
        response.body = kserve::build_model_metadata(model);
        return response;
    }

    static http::Response at_fault(EndpointFault fault) {
        if (fault == EndpointFault::server_error) {
            return error_response(500, "at fault");
        }
        if (fault == EndpointFault::reset) {
            http::Response response;
            response.stream = std::make_unique<BrokenStream>();
            return response;
        }
        http::Response response = error_response(503, "at fault");
        if (fault == EndpointFault::retry_after) {
            response.headers.emplace_back("Retry-After", "5");
        }
        return response;
    }

    asio::awaitable<http::Response> infer(http::Request request, double factor, EndpointFault fault) {
        const std::uint64_t arrival = requests_++;
        auto body = std::make_shared<const std::string>(std::move(request.body));
        std::optional<std::size_t> header_length;
        if (const auto text = request.header(kserve::kHeaderLengthField)) {
            std::size_t length = 0;
            std::from_chars(text->data(), text->data() + text->size(), length);
            header_length = length;
        }
        Result<kserve::InferRequest> parsed = kserve::parse_infer_request(body, header_length);
        if (!parsed) {
            co_return error_response(400, parsed.error().message);
        }
        const kserve::InferTensor* ids = nullptr;
        for (const kserve::InferTensor& tensor : parsed->inputs) {
            if (tensor.name == "input_ids" && tensor.datatype == "INT32" && tensor.shape.size() == 2) {
                ids = &tensor;
            }
        }
        if (ids == nullptr) {
            co_return error_response(400, "input_ids INT32 [B, T] is missing");
        }
        const auto wanted = parsed->parameters.find("top_k");
        std::int64_t top_k = 8;
        if (wanted != parsed->parameters.end()) {
            if (const auto* value = std::get_if<std::int64_t>(&wanted->second)) {
                top_k = *value;
            }
        }
        const std::int64_t rows = ids->shape[0];
        const std::int64_t columns = ids->shape[1];
        // The client's probe has three positions and is no micro-batch.
        if (columns >= static_cast<std::int64_t>(kNumberIds)) {
            if (fault != EndpointFault::none && fault != EndpointFault::timeout) {
                co_return at_fault(fault);
            }
            const std::uint64_t number = number_of_ids(kserve::copy_elements<std::int32_t>(*ids));
            const std::uint64_t attempt = attempts_[number]++;
            const Nanos latency = scaled(latency_of(number, attempt), factor);
            asio::steady_timer timer(co_await asio::this_coro::executor);
            timer.expires_after(fault == EndpointFault::timeout ? Nanos(std::chrono::hours(1)) : latency);
            co_await timer.async_wait(kTuple);
            if (fails(arrival)) {
                co_return error_response(500, "drawn to fail");
            }
        }
        co_return answer(rows, columns, top_k);
    }

    Nanos latency_of(std::uint64_t number, std::uint64_t attempt) const {
        const std::vector<Nanos>& list = options_.latencies;
        if (attempt == 0) {
            return list[number % list.size()];
        }
        return list[SplitMix64(number * 31 + attempt).next() % list.size()];
    }

    bool fails(std::uint64_t arrival) const {
        return SplitMix64(arrival + (options_.seed << 32)).uniform() < options_.failure_rate;
    }

    http::Response answer(std::int64_t rows, std::int64_t columns, std::int64_t top_k) {
        auto& encoded = answers_[{rows, columns, top_k}];
        if (encoded.body.empty()) {
            encoded = encode(rows, columns, top_k);
        }
        http::Response response;
        response.content_type = std::string(encoded.content_type());
        if (encoded.json_header_length) {
            response.headers.emplace_back(std::string(kserve::kHeaderLengthField),
                                          std::to_string(*encoded.json_header_length));
        }
        response.body = encoded.body;
        return response;
    }

    kserve::EncodedMessage encode(std::int64_t rows, std::int64_t columns, std::int64_t top_k) const {
        const auto positions = static_cast<std::size_t>(rows * columns);
        const auto width = static_cast<std::size_t>(top_k);
        std::vector<std::uint32_t> ids(positions * width);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            ids[i] = static_cast<std::uint32_t>(i % width);
        }
        const float each = 0.9F / static_cast<float>(top_k);
        std::vector<float> tail(positions, std::log(0.1F));
        kserve::InferResponse response;
        response.model_name = "teacher";
        response.outputs.push_back(kserve::make_tensor("topk_ids", "UINT32", {rows, columns, top_k}, std::move(ids)));
        // FP16 has no JSON form (the protocol refuses it there), so that answer is FP32.
        const float value = std::log(each);
        if (options_.json_answers) {
            response.outputs.push_back(kserve::make_tensor("topk_logprobs", "FP32", {rows, columns, top_k},
                                                           std::vector<float>(positions * width, value)));
        } else {
            const std::vector<std::uint16_t> halves(positions * width, float_to_half(value));
            response.outputs.push_back(kserve::make_tensor("topk_logprobs", "FP16", {rows, columns, top_k}, halves));
        }
        response.outputs.push_back(kserve::make_tensor("tail_logprob", "FP32", {rows, columns}, std::move(tail)));
        for (kserve::InferTensor& output : response.outputs) {
            output.binary = !options_.json_answers;
        }
        return kserve::build_infer_response(response).value();
    }

    LoopbackTeacherOptions options_;
    asio::io_context io_{1};
    std::vector<std::unique_ptr<http::Server>> servers_;
    std::vector<std::string> urls_;
    std::thread thread_;
    std::atomic<std::uint64_t> requests_{0};
    std::map<std::uint64_t, std::uint64_t> attempts_;  // by micro-batch; the server's thread only
    std::map<std::array<std::int64_t, 3>, kserve::EncodedMessage> answers_;
};

}  // namespace

std::vector<std::int32_t> ids_of_number(std::uint64_t number) {
    std::vector<std::int32_t> ids(kNumberIds);
    for (std::int32_t& id : ids) {
        id = static_cast<std::int32_t>(number % kIdBase);
        number /= kIdBase;
    }
    return ids;
}

std::uint64_t number_of_ids(const std::vector<std::int32_t>& ids) {
    std::uint64_t number = 0;
    for (std::size_t i = kNumberIds; i-- > 0;) {
        number = number * kIdBase + static_cast<std::uint64_t>(ids.at(i));
    }
    return number;
}

std::unique_ptr<LoopbackTeacher> make_loopback_teacher(LoopbackTeacherOptions options) {
    return std::make_unique<LatencyTeacher>(std::move(options));
}

}  // namespace distilld::bench
