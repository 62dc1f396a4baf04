#include "service/ctl/context.h"

#include <cstdio>
#include <cstdlib>

#include "service/admin_wire.h"
#include "service/config.h"

namespace tandem::service::ctl {
namespace {

constexpr const char* kDefaultConfig = "/etc/tandem/tandem.toml";
constexpr const char* kDefaultSocket = "/run/tandem/admin.sock";
constexpr const char* kUnreachablePath = "admin_socket";  // marks the one error with a code of its own
constexpr auto kAskLimit = std::chrono::seconds(20);

}  // namespace

std::string Context::config_path() const { return arguments_.flag("--config", kDefaultConfig); }

Result<std::string> Context::socket_path() const {
  if (arguments_.has("--socket")) return arguments_.flag("--socket");
  if (!arguments_.has("--config")) {
    const char* from_environment = std::getenv("TANDEM_ADMIN_SOCKET");
    if (from_environment != nullptr && *from_environment != '\0') return std::string(from_environment);
  }
  auto config = load_config(config_path());
  if (config.ok()) return config->server.admin_socket;
  if (arguments_.has("--config") || config.error().code != Errc::io) return config.error();
  return std::string(kDefaultSocket);
}

Result<Json> Context::ask(const std::string& command, Json fields) const {
  TRY_ASSIGN(const std::string path, socket_path());
  Json request = Json::object();
  request.set("command", command);
  for (auto& [name, value] : fields.as_object()) request.set(name, std::move(value));
  auto answer = ask_admin(path, request, kAskLimit);
  if (answer.ok()) return admin_result(std::move(*answer));
  return make_error(Errc::unavailable,
                    "tandemd cannot be reached at " + path + ": " + answer.error().message +
                        ". Is it running? --socket or --config says where it is",
                    kUnreachablePath);
}

int report(const Error& error) {
  std::fprintf(stderr, "tandemctl: %s\n", error.message.c_str());
  if (error.code == Errc::invalid_argument) return kUsage;
  return error.path == kUnreachablePath ? kUnreachable : kFailed;
}

void print_json(const Json& json) { std::printf("%s\n", json.dump().c_str()); }

}  // namespace tandem::service::ctl
