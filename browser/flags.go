package browser

// flags are how Chrome is started. proxy is the address of ours, profile the
// folder for its files. Without the sandbox pages are held by the container
// alone.
func flags(proxy, profile string, sandbox bool) []string {
	f := []string{
		"--headless",
		"--remote-debugging-pipe",
		"--user-data-dir=" + profile,

		// Everything goes through the proxy, this machine's own names too,
		// and nothing is looked up or sent beside it.
		"--proxy-server=http://" + proxy,
		"--proxy-bypass-list=<-loopback>",
		"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
		"--dns-prefetch-disable",
		"--disable-quic",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",

		// Nothing on the browser's own account.
		"--disable-background-networking",
		"--disable-breakpad",
		"--disable-client-side-phishing-detection",
		"--disable-component-extensions-with-background-pages",
		"--disable-component-update",
		"--disable-default-apps",
		"--disable-domain-reliability",
		"--disable-extensions",
		"--disable-field-trial-config",
		"--disable-sync",
		"--gaia-url=http://chrome.invalid",
		"--google-apis-url=http://chrome.invalid",
		"--google-url=http://chrome.invalid",
		"--metrics-recording-only",
		"--no-default-browser-check",
		"--no-first-run",
		"--no-pings",
		"--no-service-autorun",
		"--password-store=basic",
		"--use-mock-keychain",

		// Pages behave the same whether they are looked at or not.
		"--disable-background-timer-throttling",
		"--disable-backgrounding-occluded-windows",
		"--disable-hang-monitor",
		"--disable-ipc-flooding-protection",
		"--disable-prompt-on-repost",
		"--disable-renderer-backgrounding",
		"--force-color-profile=srgb",
		"--hide-scrollbars",
		"--lang=en-US",
		"--accept-lang=en-US",
		"--mute-audio",
		"--window-size=1280,720",

		// Small. Sites share processes: with one process for each, memory
		// grows with what a page embeds, and frames could not be read
		// together with their page.
		"--disable-dev-shm-usage",
		"--disable-gpu",
		"--renderer-process-limit=4",
		"--disable-site-isolation-trials",
		"--disable-features=AutofillServerCommunication,BackForwardCache,CertificateTransparencyComponentUpdater," +
			"DialMediaRouteProvider,ExtensionsUpdater,HttpsFirstBalancedModeAutoEnable,HttpsUpgrades,IsolateOrigins," +
			"MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,Prerender2,Translate,site-per-process",
	}
	if !sandbox {
		f = append(f, "--no-sandbox")
	}
	return append(f, "about:blank")
}
