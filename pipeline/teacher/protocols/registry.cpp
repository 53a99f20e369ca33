#include "pipeline/teacher/protocols/registry.hpp"

#include <algorithm>
#include <array>
#include <boost/url/encode.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>

#include "pipeline/teacher/protocols/adapters.hpp"
#include "pipeline/teacher/protocols/kserve/adapter.hpp"
#include "pipeline/teacher/protocols/vllm.hpp"

namespace distilld {
namespace {

constexpr TeacherProtocolRow row(TeacherProtocol protocol, std::string_view default_path,
                                 MakeProtocolAdapter make_adapter, bool (*is_spoken_by)(const ServerSigns&) = nullptr,
                                 std::string (*complete_path)(std::string) = nullptr, bool has_hidden_states = false,
                                 CheaperProtocol cheaper = {}) {
    return {protocol,      to_string(protocol), default_path,      make_adapter,
            complete_path, is_spoken_by,        has_hidden_states, cheaper};
}

constexpr TeacherProtocolRow with_samples(TeacherProtocolRow row) {
    row.has_samples = true;
    return row;
}

bool has_v2_page(const ServerSigns& signs) {
    return !signs.inference_server.empty();
}

/// Servers of the seed protocol have only one page.
bool has_no_page(const ServerSigns& signs) {
    return signs.inference_server.empty() && !signs.models;
}

bool is_vllm(const ServerSigns& signs) {
    return signs.lists_model_of("vllm");
}

bool is_sglang(const ServerSigns& signs) {
    return signs.lists_model_of("sglang");
}

Result<std::unique_ptr<TeacherProtocolAdapter>> make_automatic(const ProtocolSettings& settings) {
    return make_automatic_adapter(settings, teacher_protocols());
}

/// The table of all supported protocols.
constexpr std::array kRows{
    row(TeacherProtocol::automatic, "/", make_automatic, nullptr, nullptr, true),
    with_samples(row(TeacherProtocol::kserve, "/v2/models/{model}/infer", kserve::make_protocol_adapter, has_v2_page,
                     kserve::complete_path, true)),
    row(TeacherProtocol::seed, "/v1/completions", make_seed_protocol_adapter, has_no_page),
    row(TeacherProtocol::vllm, "/v1/completions", vllm::make_completions_adapter, is_vllm, vllm::complete_path, false,
        {TeacherProtocol::vllm_generate, vllm::has_generate_route}),
    row(TeacherProtocol::vllm_generate, "/inference/v1/generate", vllm::make_generate_adapter),
    row(TeacherProtocol::sglang, "/generate", make_sglang_protocol_adapter, is_sglang),
    row(TeacherProtocol::trl, "/get_sequence_logprobs/", make_trl_protocol_adapter),
};

constexpr bool every_protocol_has_one_row() {
    return std::all_of(kTeacherProtocolNames.begin(), kTeacherProtocolNames.end(), [](const auto& name) {
        return std::count_if(kRows.begin(), kRows.end(),
                             [&](const auto& entry) { return entry.protocol == name.value; }) == 1;
    });
}
static_assert(kRows.size() == kTeacherProtocolNames.size() && every_protocol_has_one_row());

}  // namespace

std::span<const TeacherProtocolRow> teacher_protocols() noexcept {
    return kRows;
}

const TeacherProtocolRow* find_protocol(std::span<const TeacherProtocolRow> rows, TeacherProtocol protocol) noexcept {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const auto& entry) { return entry.protocol == protocol; });
    return found == rows.end() ? nullptr : &*found;
}

std::string default_path_for(const TeacherProtocolRow& row, std::string_view model) {
    constexpr std::string_view kModel = "{model}";
    std::string path(row.default_path);
    if (const std::size_t at = path.find(kModel); at != std::string::npos) {
        path.replace(at, kModel.size(), boost::urls::encode(model, boost::urls::unreserved_chars));
    }
    return path;
}

}  // namespace distilld
