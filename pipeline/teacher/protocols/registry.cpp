#include "pipeline/teacher/protocols/registry.hpp"

#include <algorithm>
#include <array>
#include <boost/url/encode.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>

#include "pipeline/teacher/protocols/kserve/adapter.hpp"
#include "pipeline/teacher/protocols/seed.hpp"

namespace distilld {
namespace {

constexpr TeacherProtocolRow row(TeacherProtocol protocol, std::string_view default_path,
                                 MakeProtocolAdapter make_adapter,
                                 std::string (*complete_path)(std::string) = nullptr) {
    return {protocol, to_string(protocol), default_path, make_adapter, complete_path};
}

/// The one table of the protocols that we speak.
constexpr std::array kRows{
    row(TeacherProtocol::kserve, "/v2/models/{model}/infer", kserve::make_protocol_adapter, kserve::complete_path),
    row(TeacherProtocol::seed, "/v1/completions", make_seed_protocol_adapter),
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
