#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pipeline/core/teacher_protocol.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {

/// Another protocol of the same servers, by which their answers are cheaper, where its page is there.
struct CheaperProtocol {
    TeacherProtocol protocol = TeacherProtocol::automatic;
    /// Whether the server has the page `target`; null: there is no such protocol.
    boost::asio::awaitable<FetchResult<bool>> (*is_there)(ProbeDialogue& dialogue, std::string target) = nullptr;
};

/// One protocol that we speak.
struct TeacherProtocolRow {
    TeacherProtocol protocol;
    std::string_view name;
    /// Of an endpoint whose URL has none. `{model}` stands for the model's name.
    std::string_view default_path;
    MakeProtocolAdapter make_adapter;
    /// Completes the path of an endpoint's URL that leaves out what goes without saying; null: it is taken as it is.
    std::string (*complete_path)(std::string path) = nullptr;
    /// Whether a server with these signs speaks it, for protocol "auto"; null: it is spoken only where it is named.
    bool (*is_spoken_by)(const ServerSigns& signs) = nullptr;
    /// Whether a teacher can be asked for hidden states at all.
    bool has_hidden_states = false;
    /// Which "auto" takes in place of this one.
    CheaperProtocol cheaper{};
};

/// A row for each value of TeacherProtocol.
[[nodiscard]] std::span<const TeacherProtocolRow> teacher_protocols() noexcept;

/// The row of `protocol`; null when there is none among `rows`.
[[nodiscard]] const TeacherProtocolRow* find_protocol(std::span<const TeacherProtocolRow> rows,
                                                      TeacherProtocol protocol) noexcept;

/// The row's default path for a model, percent-encoded.
[[nodiscard]] std::string default_path_for(const TeacherProtocolRow& row, std::string_view model);

}  // namespace distilld
