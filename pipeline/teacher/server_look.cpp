#include "pipeline/teacher/server_look.hpp"

#include <algorithm>
#include <utility>

#include "pipeline/teacher/protocols/automatic.hpp"
#include "pipeline/teacher/protocols/registry.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

constexpr std::uint64_t kPageLimit = std::uint64_t{1} << 20U;

/// Asks pages and waits for nothing.
class OneLook final : public ProbeDialogue {
  public:
    OneLook(TeacherEndpoint& endpoint, std::chrono::nanoseconds deadline) : endpoint_(endpoint), deadline_(deadline) {}

    std::string page(std::string_view target) const override { return endpoint_.page(target); }
    asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request, std::optional<unsigned>) override {
        request.response_limit = kPageLimit;
        return endpoint_.send(std::move(request), deadline_);
    }
    asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec>) override {
        co_return FetchError{FailureKind::rejected, "nothing is asked", std::nullopt};
    }

  private:
    TeacherEndpoint& endpoint_;
    std::chrono::nanoseconds deadline_;
};

}  // namespace

asio::awaitable<std::string> look_at_server(TeacherEndpoint& endpoint, std::chrono::nanoseconds deadline) {
    const TeacherProtocol own = endpoint.settings().spec.protocol;
    if (own == TeacherProtocol::automatic) {
        co_return std::string();
    }
    OneLook dialogue(endpoint, deadline);
    const auto signs =
        co_await ask_for_signs(dialogue, root_of(endpoint.url().path, teacher_protocols()), endpoint.url().query);
    const std::string asked = std::string(" (/teacher/protocol is \"") + to_string(own) + "\")";
    if (!signs || (signs->inference_server.empty() && !signs->models)) {
        co_return asked;
    }
    const auto rows = teacher_protocols();
    const auto spoken = std::find_if(rows.begin(), rows.end(), [&](const TeacherProtocolRow& row) {
        return row.is_spoken_by != nullptr && row.is_spoken_by(*signs);
    });
    const std::string models = signs->models ? ", with the models " + names_of(*signs->models) : std::string();
    if (spoken == rows.end()) {
        co_return "; the server is an OpenAI-style one of a kind that is not known here" + models + asked;
    }
    if (spoken->protocol == own) {
        co_return std::string();
    }
    co_return "; the server seems to speak \"" + std::string(spoken->name) + "\"" + models + asked;
}

}  // namespace distilld
