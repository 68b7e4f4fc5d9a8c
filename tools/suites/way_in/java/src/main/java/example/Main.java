package example;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;

/** Libraries in cluster and sentinel mode. Usage: Main LIBRARY MODE HOST:PORT... */
public final class Main {
  private static final long PATIENCE_MS = 60_000;
  private static final String MASTER = "mymaster";

  /** The two commands that the test needs. */
  interface Store {
    void set(String key, String value);

    String get(String key);
  }

  private static Store jedis(String mode, List<String> addresses) {
    Set<HostAndPort> nodes =
        addresses.stream().map(HostAndPort::from).collect(Collectors.toSet());
    UnifiedJedis client =
        mode.equals("cluster")
            ? redis.clients.jedis.RedisClusterClient.builder().nodes(nodes).build()
            : RedisSentinelClient.builder().masterName(MASTER).sentinels(nodes).build();
    return new Store() {
      @Override
      public void set(String key, String value) {
        client.set(key, value);
      }

      @Override
      public String get(String key) {
        return client.get(key);
      }
    };
  }

  private static Store lettuce(String mode, List<String> addresses) {
    RedisClusterCommands<String, String> commands =
        mode.equals("cluster") ? lettuceCluster(addresses) : lettuceSentinel(addresses);
    return new Store() {
      @Override
      public void set(String key, String value) {
        commands.set(key, value);
      }

      @Override
      public String get(String key) {
        return commands.get(key);
      }
    };
  }

  private static RedisClusterCommands<String, String> lettuceCluster(List<String> addresses) {
    List<RedisURI> uris =
        addresses.stream().map(it -> RedisURI.create("redis://" + it)).collect(Collectors.toList());
    uris.forEach(uri -> uri.setTimeout(Duration.ofSeconds(5)));
    RedisClusterClient client = RedisClusterClient.create(uris);
    ClusterTopologyRefreshOptions refresh =
        ClusterTopologyRefreshOptions.builder()
            .enablePeriodicRefresh(Duration.ofSeconds(1))
            .enableAllAdaptiveRefreshTriggers()
            .build();
    client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
    return client.connect().sync();
  }

  private static RedisClusterCommands<String, String> lettuceSentinel(List<String> addresses) {
    RedisURI.Builder builder = null;
    for (String address : addresses) {
      HostAndPort one = HostAndPort.from(address);
      builder =
          builder == null
              ? RedisURI.Builder.sentinel(one.getHost(), one.getPort(), MASTER)
              : builder.withSentinel(one.getHost(), one.getPort());
    }
    RedisURI uri = builder.withTimeout(Duration.ofSeconds(5)).build();
    return RedisClient.create(uri).connect().sync();
  }

  private static Store redisson(String mode, List<String> addresses) {
    String[] uris = addresses.stream().map(it -> "redis://" + it).toArray(String[]::new);
    Config config = new Config();
    config.setCodec(StringCodec.INSTANCE);
    if (mode.equals("cluster")) {
      config.useClusterServers().setScanInterval(500).addNodeAddress(uris);
    } else {
      config
          .useSentinelServers()
          .setScanInterval(500)
          .setMasterName(MASTER)
          .addSentinelAddress(uris);
    }
    RedissonClient client = Redisson.create(config);
    return new Store() {
      @Override
      public void set(String key, String value) {
        client.<String>getBucket(key).set(value);
      }

      @Override
      public String get(String key) {
        return client.<String>getBucket(key).get();
      }
    };
  }

  /** Repeats what fails, as an application does. A repeated SET changes nothing. */
  private static <T> T persist(Callable<T> action) throws Exception {
    long end = System.currentTimeMillis() + PATIENCE_MS;
    while (true) {
      try {
        return action.call();
      } catch (RuntimeException error) {
        if (System.currentTimeMillis() > end) {
          throw error;
        }
        Thread.sleep(50);
      }
    }
  }

  private static Store connect(String library, String mode, List<String> addresses) {
    switch (library) {
      case "jedis":
        return jedis(mode, addresses);
      case "lettuce":
        return lettuce(mode, addresses);
      default:
        return redisson(mode, addresses);
    }
  }

  private static void write(Store store, int from, int count) throws Exception {
    for (int number = 0; number < count; number++) {
      String value = String.valueOf(from + number);
      persist(
          () -> {
            store.set("w:" + value, value);
            return null;
          });
      if (number == count / 2) {
        System.out.println("half");
      }
    }
    System.out.println("written");
  }

  private static void check(Store store, int written) throws Exception {
    for (int number = 0; number < written; number++) {
      String key = "w:" + number;
      String found = persist(() -> store.get(key));
      if (!String.valueOf(number).equals(found)) {
        System.out.println("FAILED " + key + " is " + found);
        return;
      }
    }
    System.out.println("ok");
  }

  public static void main(String[] args) throws Exception {
    List<String> addresses = Arrays.asList(args).subList(2, args.length);
    Store store = persist(() -> connect(args[0], args[1], addresses));
    System.out.println("ready");
    int written = 0;
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (line.equals("check")) {
        check(store, written);
      } else {
        int count = Integer.parseInt(line.split(" ")[1]);
        write(store, written, count);
        written += count;
      }
    }
    System.exit(0);
  }

  private Main() {}
}
